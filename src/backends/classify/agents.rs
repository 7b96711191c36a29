//! Command-line workers, by their own sentences. Those of the first table stand at the start of
//! what a CLI prints, and are looked for even where it exits with 0.

use super::rule::{Rule, rule, when};
use crate::model::Outcome::{
    Auth, ContentFiltered, CreditExhausted, Error, ModelUnavailable, PacketTooLarge,
    QuotaUnclassified, RateLimited, Transient,
};

/// Sentences that a CLI prints in place of an answer.
pub(super) static SENTENCES: &[Rule] = &[
    rule(
        "copilot-premium",
        CreditExhausted,
        when().says(&[
            r"premium (?:model )?(?:request )?(?:requests? )?(?:allowance|quota|limit)",
            r"out of premium requests",
            r"monthly limit (?:for|of) premium requests",
            r"used (?:up )?all (?:of )?your .{0,40}(?:this|the|per) month",
            r"you have no quota",
            r"exhausted your .{0,40}(?:premium|monthly)",
        ]),
        "Copilot CLI and editor: the month's fixed allowance",
    ),
    rule(
        "codex-workspace-credits",
        CreditExhausted,
        when().says(&[r"(?:workspace|account|team|organization) is out of credits", r"quota exceeded\. check your plan and billing", r"to use codex with your chatgpt plan, upgrade"]),
        "Codex CLI",
    ),
    rule(
        "cursor-month",
        CreditExhausted,
        when().says(&[r"when your monthly cycle ends", r"hit your free requests limit"]),
        "Cursor CLI: the month's allowance",
    ),
    rule(
        "plan-limit",
        RateLimited,
        when().says(&[
            r"you(?:'ve| have) (?:hit|reached) (?:your|the) (?:[a-z0-9.-]+ ){0,4}limit",
            r"(?:session|weekly|daily|hourly|5-hour|opus|sonnet|haiku|usage|opus weekly|rolling) limit reached",
            r"claude (?:[a-z]+ )?usage limit reached",
            r"usage limit (?:has been )?reached",
            r"limit will reset at",
            r"out of extra usage",
            r"sorry, you've hit a rate limit",
            r"exceeded your copilot token usage",
            r"usage_limit_reached",
        ])
        .unless(&[r"your specified (?:api |workspace )", r"billing cycle"]),
        "Claude Code, Codex, Gemini CLI, Copilot CLI: plan windows",
    ),
    rule(
        "claude-login",
        Auth,
        when().says(&[
            r"please run /login",
            r"invalid api key .{0,4}please run",
            r"failed to authenticate",
            r"organization does not have access to claude",
            r"organization has disabled .{0,40}access",
            r"access denied by policy",
            r"your access token could not be refreshed",
            r"not logged in",
            r"no authentication information found",
            r"authentication required\. please run",
            r"providerautherror",
        ]),
        "Claude Code, Codex, Copilot, Cursor and opencode CLIs",
    ),
    rule(
        "claude-too-long",
        PacketTooLarge,
        when().says(&[
            r"^prompt is too long",
            r"response exceeded the [0-9,]+ output token maximum",
            r"request too large \(max",
            r"conversation is too long|conversation too long",
        ]),
        "Claude Code",
    ),
    rule(
        "codex-no-room",
        PacketTooLarge,
        when().says(&[r"ran out of room in the model's context window"]),
        "Codex CLI",
    ),
    rule(
        "cli-model-full",
        ModelUnavailable,
        when().says(&[
            r"selected model is at capacity",
            r"access to \S{1,80} has been temporarily limited",
        ]),
        "Codex and Claude Code CLIs",
    )
    .heals(),
    rule(
        "cli-model",
        ModelUnavailable,
        when().says(&[
            r"there's an issue with the selected model",
            r"model is not supported when using",
            r"(?:requested|selected|this) model is not (?:supported|available)",
            r"cannot use this model",
        ]),
        "Claude Code, Codex, Copilot and Cursor CLIs",
    ),
    rule(
        "claude-usage-policy",
        ContentFiltered,
        when().says(&[r"appears to violate our usage policy", r"output blocked by content filtering"]),
        "Claude Code and Anthropic",
    ),
];

/// What CLIs add around an error.
pub(super) static WRAPPERS: &[Rule] = &[
    rule(
        "codex-retries-spent",
        QuotaUnclassified,
        when().says(&[r"exceeded retry limit, last status: 429"]),
        "Codex CLI drops the body of the 429",
    ),
    rule(
        "codex-stream",
        Transient,
        when()
            .says(&[
                r"\bstream (?:disconnected|closed|error)",
                r"idle timeout waiting for sse",
                r"exceeded retry limit, last status: 5\d\d",
            ])
            .unless(&[
                r"rate limit",
                r"unauthorized|forbidden",
                r"quota|usage limit",
                r"context (?:window|length)",
                r"reason: content_filter",
            ]),
        "Codex CLI",
    ),
    rule(
        "codex-configuration",
        Error,
        when().says(&[
            r"not inside a trusted directory",
            r"error loading config",
            r"unexpected argument|unrecognized option|unknown option",
            r"\bbwrap: |landlock|sandbox(?:ing)? (?:error|failed|denied|is not)",
            r"command not found",
        ]),
        "agent CLIs: configuration and sandbox",
    ),
    rule(
        "gemini-exit-auth",
        Auth,
        when().backend(&["gemini"]).exit(&[41, 145]),
        "Gemini CLI exit codes: 41 is authentication, 145 is 401 modulo 256",
    ),
    rule(
        "gemini-exit-quota",
        QuotaUnclassified,
        when().backend(&["gemini"]).exit(&[173]),
        "Gemini CLI exit code 173 is 429 modulo 256",
    ),
];

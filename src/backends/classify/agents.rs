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
        "claude-credit",
        CreditExhausted,
        when().says(&[r"credit balance (?:is )?too low"]),
        "Claude Code",
    ),
    rule(
        "claude-extra-usage",
        CreditExhausted,
        when().says(&[r"out of extra usage\. (?:add|buy|ask)"]),
        "Claude Code 400: paid usage on top of the plan is spent; with a time it is `plan-limit`",
    ),
    rule(
        "plan-limit",
        RateLimited,
        when().says(&[
            r"you(?:'ve| have) (?:hit|reached) your (?:[a-z0-9.-]+ ){0,4}limit",
            r"you(?:'ve| have) (?:hit|reached) the (?:(?:[a-z0-9.-]+ ){0,2}(?:usage|rate|quota|message|request|session|daily|weekly|monthly) )?limit",
            r"(?:session|weekly|daily|hourly|5-hour|opus|sonnet|haiku|usage|opus weekly|rolling) limit reached",
            r"claude (?:[a-z]+ )?usage limit reached",
            r"usage limit (?:has been )?reached",
            r"limit will reset at",
            r"out of extra usage",
            r"sorry, you've hit a rate limit",
            r"exceeded your copilot token usage",
            r"usage_limit_reached",
        ])
        .unless(&[
            r"your specified (?:api |workspace )",
            r"billing cycle",
            r"monthly api usage threshold",
            r"monthly_request_count",
        ]),
        "Claude Code, Codex, Gemini CLI, Copilot CLI: plan windows",
    ),
    rule(
        "claude-login",
        Auth,
        when().says(&[
            r"please run /login",
            r"invalid api key .{0,4}(?:please run|fix external api key)",
            r"failed to authenticate",
            r"organization does not have access to claude",
            r"organization has disabled .{0,40}access",
            r"access denied by policy",
            r"your access token could not be refreshed",
            r"not logged in",
            r"no authentication information found",
            r"authentication required\. please run",
            r"providerautherror",
            r"does not meet scope requirement",
            r"ineligibletiererror|eligibility check failed|must configure google_cloud_project",
            r"api access (?:is |has been )?(?:paused|suspended|revoked)",
            r"(?:missing|requires the) environment variable:? .{0,3}[a-z0-9_]{0,40}(?:key|token)\b",
            r"api_key client option must be set",
        ]),
        "Claude Code, Codex, Copilot, Cursor, Gemini and opencode CLIs; OpenAI's Python client",
    ),
    rule(
        "token-refresh",
        Auth,
        when()
            .says(&[
                r"failed to refresh (?:the |your )?(?:oauth |access )?token",
                r"token refresh failed",
            ])
            // What kept the refresh from being answered is not the token's fault.
            .unless(&[
                r"too many requests|refresh failed: (?:429|5)|refresh \S{0,10}token: (?:429|5)",
                r"error sending request|timed out|timeout|\bnetwork\b|\bconnect",
            ]),
        "Codex CLI and opencode's sign-in plugins",
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
            r"access to \S{1,80} has been temporarily limited",
            r"model requires a newer version of",
            r"is not available (?:with|on|in) (?:the |your )?(?:[a-z]+ ){1,3}plan\b",
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

/// Exit codes of a program that failed by itself: interpreters, shells, git, a panic, an abort.
const FAILED: &[i32] = &[1, 2, 101, 126, 127, 128, 134, 139];

/// What breaks on the runner itself. None of it is about the backend, whatever words and numbers
/// stand in it; only command-line workers have an exit code, so a server's answer never matches.
pub(super) static RUNNER: &[Rule] = &[
    rule(
        "runner-crash",
        Error,
        when().exit(FAILED).says(&[
            r"\bthread '[^']{0,80}' (?:\([0-9]+\) )?panicked at",
            r"javascript heap out of memory",
            r"\bsegmentation fault\b",
            r"cannot find module '|err_module_not_found",
            // A bug of the script is the last thing that Python says.
            r"traceback \(most recent call last\).*\b(?:key|index|attribute|name|unboundlocal|import|modulenotfound|syntax|indentation|filenotfound|zerodivision|recursion|unicodedecode)error(?:: .{0,200})?$",
        ]),
        "panics of Rust, tracebacks of Python, V8 and Node",
    ),
    rule(
        "runner-build",
        Error,
        when().exit(FAILED).says(&[
            r"\berror\[e[0-9]{4}\]: |could not compile `",
            r"\btest result: failed\. |error: test failed, to rerun",
        ]),
        "rustc and cargo: names of functions and tests are no limits",
    ),
    rule(
        "runner-packages",
        Error,
        when().exit(FAILED).says(&[
            r"npm (?:err!|error) code e(?:40[0-7]|41[0-9]|usage|acces|perm|noent|resolve|integrity|badengine|target|json)",
        ]),
        "npm: a package or its registry's token, not a model or the backend's key",
    ),
    rule(
        "runner-packages-busy",
        Transient,
        when().exit(FAILED).says(&[r"npm (?:err!|error) code e(?:429|5[0-9][0-9])\b"]),
        "npm: its registry is busy, not the backend",
    ),
    rule(
        "runner-git",
        Error,
        when().exit(FAILED).says(&[
            r"fatal: (?:authentication failed for|could not read (?:username|password)|not a git repository)",
        ]),
        "git: its own credential",
    ),
    rule(
        "runner-shell",
        Error,
        when().exit(FAILED).says(&[
            r"unexpected eof while looking for matching",
            r"syntax error near unexpected token",
        ]),
        "sh and bash",
    ),
    rule(
        "runner-disk",
        Error,
        when().exit(FAILED).says(&[
            r"disk quota exceeded",
            r"no space left on device",
            r"read-only file system",
            r"too many open files",
        ]),
        "errno texts of EDQUOT, ENOSPC, EROFS and EMFILE",
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
        "aider-token-limit",
        PacketTooLarge,
        when().says(&[r"has hit a token limit!"]),
        "aider: context window or output cap",
    ),
    rule(
        "cdn-challenge",
        Transient,
        when().says(&[r"enable javascript and cookies to continue"]),
        "Cloudflare's challenge page under a 403, as Codex CLI prints it: not the key",
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

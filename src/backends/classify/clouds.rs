//! Model vendors with an API of their own: OpenAI and Azure, Anthropic, Google, Amazon.

use super::rule::{Rule, rule, when};
use crate::model::Outcome::{
    Auth, ContentFiltered, CreditExhausted, ModelUnavailable, PacketTooLarge, QuotaUnclassified,
    RateLimited, Transient,
};

/// OpenAI, Azure OpenAI and what copies their words.
pub(super) static OPENAI: &[Rule] = &[
    rule(
        "openai-request-larger-than-limit",
        PacketTooLarge,
        when().exceeds_alone(),
        "OpenAI and Groq 429/413: `Limit 30000, Requested 31538`; waiting never helps",
    ),
    rule(
        "openai-context-code",
        PacketTooLarge,
        when().kind(&[
            "context_length_exceeded",
            "string_above_max_length",
            "request_too_large",
            "tokens_limit_reached",
            "model_max_prompt_tokens_exceeded",
            "exceed_context_size_error",
            "contextoverflowerror",
            "messageoutputlengtherror",
            "contextwindowexceedederror",
            "context_window_exceeded",
            "max_tokens_exceeded",
        ]),
        "error codes of OpenAI, GitHub Models, Copilot, llama.cpp, opencode",
    ),
    rule(
        "openai-billing-code",
        CreditExhausted,
        when().kind(&[
            "billing_hard_limit_reached",
            "billing_not_active",
            "billing_limit_reached",
            "billing_error",
            "budget_exceeded",
            "insufficient_credits",
            "insufficient_balance",
            "payment_required",
            "spend_limit_reached",
            "usage_not_included",
            "creditserror",
            "monthlylimiterror",
            "insufficient_user_quota",
            "exceeded_current_quota_error",
            "freetieronly",
            "allocationquota.freetieronly",
            "arrearage",
            "accountoverdueerror",
        ]),
        "error codes of OpenAI, litellm, opencode zen, one-api, Moonshot, DashScope, Volcengine",
    ),
    rule(
        "dashscope-allocated-quota",
        RateLimited,
        when().says(&[r"allocated quota exceeded", r"throttling\.(?:rate|allocation|burst)"]),
        "DashScope 429: `Throttling.AllocationQuota` is its tokens per minute, not money",
    ),
    rule(
        "openai-insufficient-quota",
        CreditExhausted,
        when().kind(&["insufficient_quota"]),
        "OpenAI 429 with type or code insufficient_quota",
    ),
    rule(
        "openai-model-code",
        ModelUnavailable,
        when().kind(&[
            "model_not_found",
            "model_decommissioned",
            "model_not_available",
            "model_not_supported",
            "unknown_model",
            "unavailable_model",
            "deploymentnotfound",
            "modelnotopen",
            "modelnotfound",
            "modelnotfounderror",
            "model.accessdenied",
            "model_terms_required",
            "model_permission_blocked_project",
            "model_permission_blocked_org",
            "providermodelnotfounderror",
            "modelerror",
            "no_access",
        ]),
        "error codes of OpenAI, Groq, Azure, GitHub Models, Volcengine, DashScope, opencode",
    ),
    rule(
        "azure-content-filter",
        ContentFiltered,
        when().kind(&[
            "content_filter",
            "responsibleaipolicyviolation",
            "content_policy_violation",
            "contentfilter",
            "datainspectionfailed",
            "data_inspection_failed",
            "content_filtered",
            "moderation_blocked",
        ]),
        "Azure OpenAI, OpenAI images and DashScope error codes",
    ),
    rule(
        "azure-tier-limit",
        RateLimited,
        when().says(&[
            r"exceeded (?:the )?(?:token|call) rate limit (?:of|for) your current",
            r"exceeded (?:the )?(?:token|call) rate limit",
            r"out of call volume quota",
        ]),
        "Azure OpenAI 429 text; API Management 403 with the time until the quota is full again",
    ),
    rule(
        "openai-rate-window",
        RateLimited,
        when().says(&[
            r"rate limit reached for .{0,200}(?:tokens|requests|images) per (?:min|day|hour)",
        ]),
        "OpenAI and Groq 429: `Rate limit reached for X on tokens per min (TPM)`",
    ),
    rule(
        "openai-legacy-overload",
        Transient,
        when().says(&[
            r"that model is currently overloaded with other requests",
            r"the server had an error while processing your request",
            r"an error occurred while processing your request\. you can retry",
            r"experiencing high demand",
            r"the engine is currently overloaded",
        ]),
        "OpenAI 5xx texts; also seen inside a 200 stream; Moonshot's engine under a 429",
    ),
    rule(
        "overload-code",
        Transient,
        when().kind(&[
            "overloaded_error",
            "engine_overloaded_error",
            "server_is_overloaded",
            "slow_down",
            "overloaded",
            "queue_exceeded",
            "server_overloaded",
            "serveroverloaded",
        ]),
        "error codes of Anthropic, Moonshot, OpenAI, TGI, Cerebras, Volcengine",
    ),
];

/// Anthropic's API.
pub(super) static ANTHROPIC: &[Rule] = &[
    rule(
        "anthropic-spend-cap",
        CreditExhausted,
        when().says(&[
            r"reached your specified (?:api |workspace )?(?:api )?usage limits",
            r"credit balance is too low",
            r"draw from your extra usage",
        ]),
        "Anthropic 400 invalid_request_error that is about money",
    ),
    rule(
        "anthropic-long-context-gate",
        PacketTooLarge,
        when().says(&[
            r"(?:extra usage is|usage credits(?: are)?) required for (?:long|1m) context",
            r"long context beta is not yet available",
        ]),
        "Anthropic 429/400 on prompts above 200 k; a smaller one passes",
    ),
    rule(
        "anthropic-organisation-disabled",
        Auth,
        when().says(&[
            r"this organization has been disabled",
            r"oauth (?:authentication is currently not|token has (?:expired|been revoked)|access token is invalid)",
            r"only authorized for use with claude code",
            r"invalid x-api-key",
        ]),
        "Anthropic 400/401/403 texts",
    ),
    rule(
        "anthropic-model-not-found",
        ModelUnavailable,
        when().kind(&["not_found_error"]).says(&[r"model: ?[a-z0-9._-]+"]),
        "Anthropic 404: the message is only `model: <id>`",
    ),
    rule(
        "anthropic-rate-limit",
        RateLimited,
        when().says(&[
            r"would exceed (?:your|the) (?:account|organization|rate limit|workspace)",
            r"exceeded? your (?:organization's |account's )?(?:per-minute |daily |acceleration )?rate limit",
            r"number of (?:request tokens|requests|concurrent connections) has exceeded",
        ]),
        "Anthropic 429 rate_limit_error texts",
    ),
];

/// Gemini, Vertex and the Code Assist backend of gemini-cli.
pub(super) static GOOGLE: &[Rule] = &[
    rule(
        "gemini-input-too-long",
        PacketTooLarge,
        when().says(&[
            r"input token count .{0,40}exceeds the maximum number of tokens",
            r"request payload size exceeds the limit",
            r"unable to submit request because the input token count",
            r"(?:request|content) contains too many tokens",
        ]),
        "Gemini and Vertex 400 INVALID_ARGUMENT",
    ),
    rule(
        "gemini-prepaid-gone",
        CreditExhausted,
        when().says(&[
            r"prepa(?:id|yment) credits are depleted",
            r"exceeded its (?:monthly )?spending cap",
            r"billing account .{0,60}(?:disabled|closed|not (?:found|active))",
            r"requires? billing to be enabled",
        ]),
        "Gemini API billing texts",
    ),
    rule(
        "gemini-capacity",
        ModelUnavailable,
        when().says(&[r"no capacity available for model", r"model_capacity_exhausted"]),
        "Code Assist 429 MODEL_CAPACITY_EXHAUSTED",
    )
    .heals(),
    rule(
        "gemini-quota-window",
        RateLimited,
        when().says(&[
            r"per ?_?(?:model)?_?per_?(?:minute|day|hour|second)",
            r"(?:requests|tokens|count)[a-z_]*_?per_?(?:minute|day|hour|second)",
            r"quota exceeded for quota metric",
            r"quota exceeded for metric",
            r"quota exceeded for [a-z.]+googleapis\.com/",
            r"per (?:minute|day|hour) per (?:user|project)",
            r"exhausted your (?:daily |capacity |current )?(?:quota|capacity) on this model",
            r"quota will reset after",
            r"access resets at",
        ]),
        "QuotaFailure.quotaId / metric names of Gemini and Vertex; gemini-cli texts",
    ),
    rule(
        "gemini-retry-info",
        RateLimited,
        when().kind(&["resource_exhausted"]).says(&[r"retrydelay", r"please retry in [0-9]"]),
        "google.rpc.RetryInfo",
    ),
    rule(
        "gemini-quota-unnamed",
        QuotaUnclassified,
        when()
            .says(&[
                r"exceeded your current quota.{0,120}ai\.google\.dev",
                r"resource (?:has been )?exhausted",
            ])
            .unless(&[
                "worker local",
                "available credits|spending limit",
                "requests for team|tokens for team",
            ]),
        "Gemini without QuotaFailure details; Vertex dynamic shared quota",
    ),
    rule(
        "gemini-key",
        Auth,
        when().says(&[
            r"api key not valid|pass a valid api key",
            r"api_key_(?:invalid|expired)",
            r"api key expired",
            r"reported as leaked",
            r"service_disabled|has not been used in project",
            r"user location is not supported",
            r"set an auth method",
            r"must specify the gemini_api_key",
        ]),
        "Gemini 400/403 texts; gemini-cli start-up",
    ),
    rule(
        "gemini-model",
        ModelUnavailable,
        when().says(&[
            r"is not found for api version",
            r"publisher model .{0,160}(?:was )?not found",
            r"requested entity was not found",
            r"is no longer available to new users",
        ]),
        "Gemini and Vertex 404 texts",
    ),
];

/// Amazon Bedrock.
pub(super) static AMAZON: &[Rule] = &[
    rule(
        "bedrock-throttle",
        RateLimited,
        when().says(&[
            r"throttlingexception",
            r"too many tokens(?: per (?:day|minute))?, please wait",
            r"too many requests, please wait before trying again",
        ]),
        "Bedrock 429 ThrottlingException",
    ),
    rule(
        "bedrock-model",
        ModelUnavailable,
        when().says(&[
            r"(?:don't|do not) have access to the model",
            r"provided model identifier is invalid",
            r"with on-demand throughput isn't supported",
            r"reached the end of its life",
            r"use case details have not been submitted",
            r"access to this model is not available",
            r"access denied.{0,40}legacy",
        ]),
        "Bedrock AccessDeniedException, ValidationException, ResourceNotFoundException",
    ),
    rule(
        "bedrock-payment",
        CreditExhausted,
        when().says(&[r"invalid_payment_instrument"]),
        "Bedrock AccessDeniedException about the payment method",
    ),
    rule(
        "bedrock-credentials",
        Auth,
        when().says(&[
            r"security token included in the request is (?:invalid|expired)",
            r"unrecognizedclientexception",
            r"expiredtoken",
            r"could not load credentials",
            r"unable to locate credentials",
        ]),
        "AWS SDK texts",
    ),
    rule(
        "bedrock-not-ready",
        Transient,
        when().says(&[
            r"model(?:notready|timeout|error|streamerror)exception",
            r"model is not ready",
            r"serviceunavailableexception|internalserverexception",
            r"bedrock is unable to process your request",
        ]),
        "Bedrock 408/424/429/500/503 exceptions",
    ),
    rule(
        "bedrock-service-quota",
        QuotaUnclassified,
        when().says(&[r"servicequotaexceededexception"]),
        "Bedrock ServiceQuotaExceededException",
    ),
];

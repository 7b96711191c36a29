//! Hosted open models and routers: NVIDIA, Groq, Mistral, OpenRouter, litellm, and others.

use super::rule::{Rule, rule, when};
use crate::model::Outcome::{
    Auth, BadRequest, ContentFiltered, CreditExhausted, ModelUnavailable, PacketTooLarge,
    QuotaUnclassified, RateLimited, Transient,
};

/// NVIDIA NIM and the function layer (NVCF) below it.
pub(super) static NVIDIA: &[Rule] = &[
    rule(
        "nvcf-degraded",
        ModelUnavailable,
        when().says(&[r"degraded function cannot be invoked", r"function .{0,60}degraded"]),
        "NVCF 400: the hosted function is out of order",
    )
    .heals(),
    rule(
        "nvcf-function-missing",
        ModelUnavailable,
        when().says(&[
            r"function (?:id )?'[^']{1,80}':? (?:version .{0,60})?not found",
            r"not found for account",
            r"inactive function|function .{0,60}is (?:inactive|not active)",
        ]),
        "NVCF 404: removed, or not enabled for the account",
    ),
    rule(
        "nvcf-worker-full",
        Transient,
        when().says(&[
            r"worker local total request limit reached",
            r"no healthy (?:workers?|upstream|instances?)",
        ]),
        "NIM's shared worker has no slot; also inside a 200 stream",
    ),
    rule(
        "nvcf-pending",
        Transient,
        when().status(&[202]),
        "NVCF answers 202 while the worker is busy; it must be polled",
    ),
    rule(
        "nvcf-account-gone",
        Auth,
        when()
            .says(&[r"account '[^']{1,80}' (?:does not exist|not found)", r"public api endpoints"]),
        "NIM: the key's account lacks the service",
    ),
];

/// Routers and gateways in front of other services.
pub(super) static ROUTERS: &[Rule] = &[
    rule(
        "router-own-queue",
        Transient,
        when().says(&[r"request dropped after exceeding the local rate-limit queue"]),
        "OmniRoute 503: its own queue, not the provider's limit",
    ),
    rule(
        "gateway-cut-body",
        PacketTooLarge,
        when().says(&[r"llm request body must be valid json"]),
        "agentgateway 400: it cut an over-large body itself",
    ),
    rule(
        "proxy-body-too-big",
        PacketTooLarge,
        when().says(&[r"worker exceeded resource limits"]),
        "Cloudflare 503/1102 page in front of OpenRouter on very large bodies",
    ),
    rule(
        "litellm-budget",
        CreditExhausted,
        when().says(&[
            r"budget has been exceeded",
            r"exceededbudget",
            r"budget (?:limit )?(?:exceeded|exhausted|reached)",
            r"over (?:its |your |the )?budget",
            r"crossed budget",
        ]),
        "litellm proxy 400/429",
    ),
    rule(
        "litellm-unknown-key",
        Auth,
        when().says(&[r"no_db_connection"]),
        "litellm 400: not its own key, and no database in which others could be",
    ),
    rule(
        "litellm-no-deployment",
        RateLimited,
        when().says(&[r"no deployments available", r"over user-defined ratelimit"]),
        "litellm 429: every deployment is cooling down after limits, or over its own",
    ),
    rule(
        "openrouter-free-window",
        RateLimited,
        when().says(&[r"free-models-per-(?:day|min)", r"temporarily rate-limited upstream"]),
        "OpenRouter 429; `Add 10 credits` in it is an offer",
    ),
    rule(
        "openrouter-afford",
        CreditExhausted,
        when().says(&[
            r"can only afford",
            r"requires more credits",
            r"key limit exceeded",
            r"requires (?:a valid credit card|at least \$)",
            r"free credits temporarily",
        ]),
        "OpenRouter 402/403, Vercel AI gateway 403",
    ),
    rule(
        "openrouter-no-endpoint",
        ModelUnavailable,
        when().says(&[
            r"no (?:endpoints|allowed providers|available channels?|providers?) (?:found|are available|available|for)",
            r"no available channel for model",
            r"无可用渠道|模型不存在|该模型.{0,20}(?:不支持|下线)",
            r"is not a valid model id",
            r"invalid model name",
        ]),
        "OpenRouter 400/404, one-api and new-api 503, litellm 400",
    ),
    rule(
        "openrouter-moderation",
        ContentFiltered,
        when().says(&[r"requires moderation", r"input .{0,40}was flagged"]),
        "OpenRouter 403",
    ),
];

/// Vendors of hosted models, each by its own words.
pub(super) static HOSTS: &[Rule] = &[
    rule(
        "zhipu-balance",
        CreditExhausted,
        when().says(&[
            r"余额不足|欠费|额度不足|额度已用尽|资源包.{0,8}用[尽完]|预扣费额度失败|套餐已(?:到期|过期)",
            r"insufficient (?:account )?balance",
            r"no resource package",
            r#""code": ?"?1113\b"#,
        ]),
        "Zhipu 1113, DeepSeek 402, Moonshot, one-api",
    ),
    rule(
        "zhipu-window",
        RateLimited,
        when().says(&[
            r#""code": ?"?(?:1302|1303|1304|1308|1310)\b"#,
            r"速率限制|请求频率|并发数?过高|使用上限|请求过于频繁",
        ]),
        "Zhipu 1302 concurrency, 1303 frequency, 1304 per day, 1308/1310 plan windows",
    ),
    rule(
        "zhipu-busy",
        Transient,
        when().says(&[r#""code": ?"?(?:1305|1234|1312)\b"#, r"访问量过大|负载已饱和|服务(?:器)?繁忙|当前.{0,12}请求过多"]),
        "Zhipu 1305 and new-api: the model is overloaded",
    ),
    rule(
        "chinese-prompt-too-long",
        PacketTooLarge,
        when().says(&[r#""code": ?"?1261\b"#, r"(?:prompt|输入|上下文|请求).{0,12}(?:超长|过长|超过.{0,8}(?:限制|上限|长度))"]),
        "Zhipu 1261 and others",
    ),
    rule(
        "chinese-content",
        ContentFiltered,
        when().says(&[r#""code": ?"?1301\b"#, r"敏感内容|不安全或敏感", r"content exists risk", r"inappropriate content", r"new_sensitive|input_sensitive"]),
        "Zhipu 1301, DeepSeek 400, DashScope, MiniMax",
    ),
    rule(
        "chinese-key",
        Auth,
        when().says(&[r"无效的令牌|令牌(?:已过期|验证)|身份验证失败|api ?key ?(?:无效|错误)|未提供令牌"]),
        "Zhipu 1000-1004, one-api 401",
    ),
    rule(
        "xai-credits",
        CreditExhausted,
        when().says(&[
            r"used all available credits",
            r"doesn't have any credits",
            r"monthly spending limit",
        ]),
        "xAI 403/429; Fireworks 412",
    ),
    rule(
        "xai-rate",
        RateLimited,
        when().says(&[r"too many (?:requests|tokens) for team"]),
        "xAI 429: per second, minute or day, as the text goes on to say",
    ),
    rule(
        "dashscope-input-range",
        PacketTooLarge,
        when().says(&[r"range of input length should be", r"range of max_tokens should be"]),
        "DashScope 400 InvalidParameter",
    ),
    rule(
        "moonshot-token-limit",
        PacketTooLarge,
        when().says(&[r"exceeded model token limit"]),
        "Moonshot 400",
    ),
    rule(
        "moonshot-account-quota",
        CreditExhausted,
        when().says(&[r"is not active, .{0,120}exceeded current quota", r"your account is not active"]),
        "Moonshot 403/429, OpenAI billing_not_active",
    ),
    rule(
        "moonshot-rate",
        RateLimited,
        when().says(&[r"reached (?:organization )?max (?:rpm|tpm|tpd|concurrency)"]),
        "Moonshot 429 rate_limit_reached_error",
    ),
    rule(
        "kimi-plan-ambiguous",
        QuotaUnclassified,
        when().kind(&["access_terminated_error"]),
        "Kimi coding plan 403: weekly quota and short window give the same answer",
    ),
    rule(
        "plan-usage-window",
        RateLimited,
        when().says(&[
            r"reached your (?:session|hourly|daily|weekly) usage limit",
            r"(?:weekly|daily|hourly|session|[0-9]+[- ]?h(?:ou)?rs?) (?:usage |request )?(?:limit|quota) (?:has been |was |is )?(?:reached|exceeded|exhausted)",
            r"freeusagelimiterror|gousagelimiterror|subscriptionusagelimiterror|subscriptionerror",
            r"free usage exceeded",
        ]),
        "Ollama cloud, coding plans, opencode zen",
    ),
    rule(
        "together-rate",
        RateLimited,
        when().says(&[r"you have been rate limited", r"your rate limit (?:is|for)"]),
        "Together 429 (its type says credit_limit), Replicate 429",
    ),
    rule(
        "mistral-tier-busy",
        Transient,
        when().status(&[500, 502, 503]).says(&[r"service tier capacity exceeded"]),
        "Mistral 503",
    ),
    rule(
        "mistral-tier",
        RateLimited,
        when().says(&[r"service tier capacity exceeded"]),
        "Mistral 429 (code 3505): the free tier's share of the model",
    ),
    rule(
        "mistral-bare",
        QuotaUnclassified,
        when().says(&[r"cannot stream response\. status: 429"]),
        "Mistral's old client: monthly cap and rate give the same text",
    ),
    rule(
        "cohere-trial",
        RateLimited,
        when().says(&[r"trial key.{0,120}calls? ?/ ?minute"]).unless(&[r"calls? ?/ ?month"]),
        "Cohere 429",
    ),
    rule(
        "cohere-trial-month",
        CreditExhausted,
        when().says(&[r"trial key.{0,160}calls? ?/ ?month"]),
        "Cohere 429: the monthly allowance of a trial key",
    ),
    rule(
        "huggingface-credits",
        CreditExhausted,
        when().says(&[r"exceeded your monthly included credits", r"credit limit (?:exceeded|reached)", r"insufficient credit"]),
        "Hugging Face, Together and Replicate 402",
    ),
    rule(
        "cloudflare-neurons",
        RateLimited,
        when().says(&[r"daily free allocation"]),
        "Workers AI 4006: heals at midnight UTC",
    ),
    rule(
        "cloudflare-1015",
        RateLimited,
        when().says(&[r"error (?:code:? )?1015\b", r"you are being rate limited"]),
        "Cloudflare 1015 page",
    ),
    rule(
        "github-secondary",
        RateLimited,
        when().says(&[r"secondary rate limit", r"api rate limit exceeded", r"abuse detection mechanism"]),
        "GitHub REST 403/429",
    ),
    rule(
        "github-models-window",
        RateLimited,
        when().says(&[r"rate limit of [0-9]+ per [0-9]+s", r"userby(?:model|day|minute)|userconcurrentrequests"]),
        "GitHub Models 429 RateLimitReached",
    ),
    rule(
        "cerebras-window",
        RateLimited,
        when().says(&[r"(?:tokens|requests) per (?:minute|hour|day|second) limit exceeded"]),
        "Cerebras 429",
    ),
    rule(
        "tgi-output-cap",
        BadRequest,
        when().says(&[r"`?max_new_tokens`? must be <="]).unless(&[r"`inputs` tokens \+"]),
        "TGI 422: the endpoint's own output cap",
    ),
];

/// Servers that people run themselves: vLLM, SGLang, llama.cpp, Ollama, LM Studio, TGI.
pub(super) static LOCAL: &[Rule] = &[
    rule(
        "vllm-negative-budget",
        PacketTooLarge,
        when().says(&[r"max_(?:completion_)?tokens must be at least 1, got -"]),
        "vLLM 400: the prompt alone exceeds the window",
    ),
    rule(
        "llama-cpp-context",
        PacketTooLarge,
        when().says(&[
            r"exceeds the available context size",
            r"context (?:size|window) (?:has been )?exceeded",
            r"trying to keep the first [0-9]+ tokens",
            r"tokens to keep from the initial prompt",
            r"prompt is too (?:long|large).{0,40}n_ctx|n_ctx.{0,40}exceed",
            r"requested tokens \([0-9]+\) exceed context window",
            r"context the overflows|context overflow",
        ]),
        "llama.cpp, llama-cpp-python, LM Studio",
    ),
    rule(
        "tgi-sum",
        PacketTooLarge,
        when().says(&[r"`inputs` (?:tokens \+|must have less than)"]),
        "TGI 422 and Together",
    ),
    rule(
        "ollama-no-model",
        ModelUnavailable,
        when().says(&[
            r"model ['\x22]?[^'\x22]{1,120}['\x22]? not found",
            r"try pulling it first",
            r"requires more system memory",
            r"no models? (?:are )?loaded",
            r"failed to load (?:the )?model",
            r"is too large to be loaded",
        ]),
        "Ollama 404/500, llama.cpp router 400, LM Studio, Hugging Face",
    ),
    rule(
        "local-starting",
        Transient,
        when().says(&[
            r"loading model",
            r"is currently loading",
            r"waiting for llama runner",
            r"llama runner process has terminated",
            r"model too busy",
            r"server busy, please try again",
            r"maximum pending requests exceeded",
            r"model (?:has )?(?:unloaded or )?crashed",
        ]),
        "llama.cpp 503, Hugging Face 503, Ollama 500/503, LM Studio 400",
    ),
];

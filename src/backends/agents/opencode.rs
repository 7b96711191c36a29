//! The opencode CLI: `opencode run`, over chat completions.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{Heard, Job, Start, TOKEN, dollars, number, os, text};
use crate::model::Usage;

pub(super) fn start(job: &Job<'_>) -> Start {
    // `--pure`: no plugins from elsewhere; `--title` saves the request that would ask for one.
    let mut args = os(&["run", "--format", "json", "--pure", "--title", "overhaul"]);
    args.extend(os(job.args));
    let mut settings = json!({
        "$schema": "https://opencode.ai/config.json",
        "autoupdate": false,
        "share": "disabled",
        "snapshot": false,
        "lsp": false,
        "formatter": false,
        "permission": {
            "edit": "allow",
            "bash": "allow",
            "webfetch": "deny",
            "external_directory": "deny",
        },
    });
    let model = match job.gateway {
        None => job.model.to_owned(),
        Some(root) => {
            settings["enabled_providers"] = json!(["overhaul"]);
            settings["provider"] = json!({"overhaul": {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": format!("{root}/v1"), "apiKey": format!("{{env:{TOKEN}}}")},
                "models": {
                    job.model: {
                        "limit": {"context": job.context_tokens, "output": job.output_tokens},
                    },
                },
            }});
            format!("overhaul/{}", job.model)
        }
    };
    settings["model"] = json!(model);
    settings["small_model"] = json!(model);
    let on = |name| (name, "1".to_owned());
    Start {
        args,
        env: vec![
            // A configuration in the worktree is material to fix, not ours to obey.
            on("OPENCODE_DISABLE_PROJECT_CONFIG"),
            on("OPENCODE_DISABLE_CLAUDE_CODE"),
            on("OPENCODE_DISABLE_AUTOUPDATE"),
            on("OPENCODE_DISABLE_MODELS_FETCH"),
            on("OPENCODE_DISABLE_LSP_DOWNLOAD"),
            on("OPENCODE_DISABLE_DEFAULT_PLUGINS"),
            on("OPENCODE_DISABLE_SHARE"),
        ],
        token: Some(TOKEN),
        files: vec![(PathBuf::from(".config/opencode/opencode.json"), settings.to_string())],
        stdin: Some(job.prompt.to_owned()),
    }
}

pub(super) fn hear(events: &[Value]) -> Heard {
    let mut heard = Heard::default();
    for event in events {
        match text(event, "/type") {
            "step_start" | "error" => heard.done = false,
            "text" => text(event, "/part/text").clone_into(&mut heard.message),
            "step_finish" => {
                heard.done = text(event, "/part/reason") == "stop";
                let tokens = |name: &str| number(event, &format!("/part/tokens/{name}"));
                heard.usage += Usage {
                    requests: 1,
                    input_tokens: tokens("input") + tokens("cache/read") + tokens("cache/write"),
                    output_tokens: tokens("output") + tokens("reasoning"),
                    cost_usd: dollars(event, "/part/cost"),
                };
            }
            _ => {}
        }
    }
    heard
}

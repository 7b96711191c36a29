//! The agy CLI: `agy --print`. It signs in by itself and takes no base URL, so its own words are
//! the only evidence. Written after its published descriptions; the program itself is not on the
//! registries that the tests install from, and was not run.

use std::path::PathBuf;

use serde_json::Value;

use super::{Heard, Job, Start, number, os, text};
use crate::model::Usage;

/// Longest prompt that is passed as an argument, bytes; Linux takes 128 KiB (`MAX_ARG_STRLEN`).
const LONGEST_ARGUMENT: usize = 100 * 1024;

pub(super) fn start(job: &Job<'_>) -> Start {
    let mut files = Vec::new();
    let prompt = if job.prompt.len() <= LONGEST_ARGUMENT {
        job.prompt.to_owned()
    } else {
        let name = PathBuf::from("prompt.md");
        let path = job.home.join(&name);
        files.push((name, job.prompt.to_owned()));
        format!("Read the file {} and do the task that it describes.", path.display())
    };
    let mut args = os(&[
        "--output-format",
        "stream-json",
        "--model",
        job.model,
        "--dangerously-skip-permissions",
        "--print-timeout",
        &format!("{}s", job.deadline.as_secs()),
    ]);
    args.extend(os(job.args));
    // As one argument, so that no prompt is taken for an option.
    args.push(format!("--print={prompt}").into());
    Start {
        args,
        env: vec![("AGY_CLI_DISABLE_AUTO_UPDATE", "true".to_owned())],
        files,
        ..Start::default()
    }
}

pub(super) fn hear(events: &[Value]) -> Heard {
    let mut heard = Heard::default();
    for event in events {
        match text(event, "/event") {
            "init" => {
                let model = text(event, "/init/model");
                heard.model = (!model.is_empty()).then(|| model.to_owned());
            }
            "result" => {
                heard.done = text(event, "/result/status") == "SUCCESS"
                    && text(event, "/result/error").is_empty();
                text(event, "/result/response").clone_into(&mut heard.message);
                let tokens = |name: &str| number(event, &format!("/result/usage/{name}"));
                heard.usage = Usage {
                    requests: u32::try_from(number(event, "/result/num_turns")).unwrap_or(u32::MAX),
                    input_tokens: tokens("input_tokens") + tokens("cache_read_tokens"),
                    output_tokens: tokens("output_tokens") + tokens("thinking_tokens"),
                    cost_usd: 0.0,
                };
            }
            _ => {}
        }
    }
    heard
}

//! Answers that real servers gave, played to the tool loop: what it makes of each.

use std::fmt::Write as _;
use std::time::Duration;

use overhaul::backends::Worker;
use overhaul::backends::openai::{OpenAiWorker, Retry};
use overhaul::backends::scripted::{Reply, Scripted};
use serde_json::Value;

use crate::attempts::{Bench, settings};

fn reply(recorded: &Value) -> Reply {
    let body =
        recorded["body"].as_str().map_or_else(|| recorded["body"].to_string(), str::to_owned);
    let kind = recorded["headers"]["content-type"].as_str().unwrap_or("application/json");
    Reply::Raw {
        status: u16::try_from(recorded["status"].as_u64().unwrap()).unwrap(),
        headers: Vec::new(),
        content_type: kind.to_owned(),
        body,
    }
}

#[tokio::test]
async fn what_the_loop_makes_of_real_answers() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/llm-answers");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let mut table = String::new();
    for file in files {
        let recorded: Value =
            serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        let answer = reply(&recorded);
        let server = Scripted::start(move |_, _| answer.clone()).await.unwrap();
        let mut settings = settings(&server, None, recorded["server"].as_str().unwrap());
        settings.retry = Retry { tries: 1, pause: Duration::from_millis(1) };
        let bench = Bench::new();
        let report = OpenAiWorker::new(settings).unwrap().work(bench.attempt.clone()).await;
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        let rule = report.classification.map_or_else(|| "-".to_owned(), |c| c.rule);
        let usage = report.usage;
        let _ = writeln!(
            table,
            "{name}: {:?} by {rule}; requests {}, tokens {}+{}, model {}",
            report.outcome,
            usage.requests,
            usage.input_tokens,
            usage.output_tokens,
            report.model_seen.as_deref().unwrap_or("-")
        );
    }
    insta::assert_snapshot!(table);
}

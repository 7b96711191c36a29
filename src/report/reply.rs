//! The one answer to the commands of a comment.

use super::page::Page;
use super::text::{code, fence, inline};
use crate::ledger::Received;
use crate::model::RunId;

/// The comment that answers, with its marker. `lines` are of one comment, in order; `usage` lists
/// the commands with their meaning, for whoever asks for help or mistyped one.
#[must_use]
pub fn reply(marker: &str, run: &RunId, lines: &[&Received], usage: &[(String, &str)]) -> String {
    let mut page = Page::body();
    page.add(&format!("{marker}\n"));
    if lines.iter().any(|line| line.verb == "invalid") {
        page.add("Nothing of this comment was done:\n\n");
    }
    for line in lines {
        let result = inline(&line.result, 600);
        page.add(&match line.verb.as_str() {
            "help" => "The commands, one a line:\n".to_owned(),
            "denied" => format!("{result}\n"),
            "invalid" => format!("- line {}: {result}\n", line.line),
            verb => {
                let command = std::iter::once(verb).chain(line.args.iter().map(String::as_str));
                let command: Vec<&str> = command.collect();
                format!("- {}: {result}\n", code(&command.join(" "), 250))
            }
        });
    }
    if lines.iter().any(|line| matches!(line.verb.as_str(), "help" | "invalid")) {
        let width = usage.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
        let list: Vec<String> =
            usage.iter().map(|(command, meaning)| format!("{command:width$}  {meaning}")).collect();
        page.add(&format!("\n{}", fence(&list.join("\n"), "text", 4_000)));
    }
    page.add(&format!("\n<sub>Run {run}</sub>\n"));
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::reply;
    use crate::ledger::Received;
    use crate::model::RunId;

    fn line(line: u32, verb: &str, args: &[&str], result: &str) -> Received {
        Received {
            comment: 7,
            body_digest: "d".to_owned(),
            on: 1,
            line,
            verb: verb.to_owned(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            actor: "ann".to_owned(),
            result: result.to_owned(),
            at: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn answers_read_well() {
        let run = RunId::new("r-0001-1a2b3c4d").unwrap();
        let usage = [("/overhaul resume".to_owned(), "go on"), ("/overhaul help".to_owned(), "x")];
        let show = |lines: &[Received]| {
            let lines: Vec<&Received> = lines.iter().collect();
            reply("<!-- overhaul:reply 7 d -->", &run, &lines, &usage)
        };
        let all = [
            show(&[
                line(1, "retry", &["N-001"], "N-001 will be tried again"),
                line(2, "resume", &[], "resumed; the next cycle goes on at once"),
            ]),
            show(&[line(3, "invalid", &[], "unknown command rety; did you mean `retry`?")]),
            show(&[line(1, "denied", &[], "Commands need write permission, @ann.")]),
            show(&[line(1, "help", &[], "")]),
        ];
        insta::assert_snapshot!(all.join("\n====\n"));
    }
}

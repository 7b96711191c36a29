//! Answers that do nothing: cut, or mere talk.

use super::{Completion, Dialect, End, Outcome, Session, invalid, prompt, reading};
use crate::backends::ONLY_TALK;

/// Answers without any action before the next dialect down is tried.
const MAX_IDLE: u32 = 2;
/// The same, once a dialect was given up for that.
const MAX_IDLE_BELOW: u32 = 1;
/// Answers cut at the output limit that end the attempt.
const MAX_CUT: u32 = 3;

impl Session<'_> {
    /// An answer that does nothing: cut, or mere talk.
    pub(super) fn no_action(&mut self, answer: &Completion, cut: bool) -> Option<End> {
        if cut {
            self.cut += 1;
            if let Some(evidence) = self.window_is_full(answer)
                && !self.history.compact()
            {
                let reading = reading(Outcome::PacketTooLarge, "finish-length", evidence.clone());
                return Some(End::Failed(Outcome::PacketTooLarge, Some(reading), evidence));
            }
            if self.cut >= MAX_CUT {
                return Some(invalid(
                    "the model's answers were cut at the output limit again and again",
                ));
            }
            self.history.assistant(&prompt::cut(&answer.text, 2_000));
            self.history.user(
                "Your answer was cut at the output limit. Take smaller steps and think less aloud.",
            );
            return None;
        }
        self.idle += 1;
        let most = if self.talks { MAX_IDLE_BELOW } else { MAX_IDLE };
        if self.idle > most {
            self.talks = true;
            let talk = self.last_problem.is_empty();
            let end = self.step_down("the answers hold no tool call");
            return end.map(|end| if talk { only_talk(end) } else { end });
        }
        self.history.assistant(&answer.text);
        let problem = std::mem::take(&mut self.last_problem);
        let hint = match self.dialect {
            Dialect::Tools => "Call a tool. When all is done, call `finish`.",
            Dialect::Json => {
                "Answer with one JSON object {\"tool\": .., \"args\": ..}; {\"tool\": \"finish\", ..} when all is done."
            }
            Dialect::Plain => {
                "Answer with the blocks described above and the result in a fenced `json` block."
            }
        };
        self.history
            .user(&format!("{problem}{}{hint}", if problem.is_empty() { "" } else { ". " }));
        self.last_problem = problem;
        None
    }

    /// Was the answer cut by the window, and not by an output limit? One cut cannot tell: servers
    /// have output limits of their own. Two can: with a full window the sum stays the same.
    fn window_is_full(&mut self, answer: &Completion) -> Option<String> {
        let (input, output) = answer.usage?;
        let (old_input, old_output) = self.last_cut.replace((input, output))?;
        let (sum, old_sum) = (input + output, old_input + old_output);
        let full = output < self.caller.last_cap / 2
            && input > old_input
            && sum.abs_diff(old_sum) <= old_sum / 32;
        full.then(|| {
            format!("answers end when input and output reach {sum} tokens: the window is full")
        })
    }

    pub(super) fn step_down(&mut self, why: &str) -> Option<End> {
        let next = if self.fixed { None } else { self.dialect.below() };
        let Some(next) = next else {
            let problem = if self.last_problem.is_empty() { why } else { &self.last_problem };
            return Some(invalid(format!("no usable result: {problem}")));
        };
        self.note("loop", &format!("{why}: going on as {next:?}"));
        self.dialect = next;
        self.idle = 0;
        self.restart();
        None
    }
}

/// The end of a model that was asked in every form and only talked: a next turn would be the same.
fn only_talk(end: End) -> End {
    match end {
        End::Failed(Outcome::InvalidResult, None, problem) => {
            let detail = format!(
                "{problem}; the model only talks: give the pool a `model` that follows instructions \
                 and calls tools, or another form of them by `tools`"
            );
            let reading = reading(Outcome::InvalidResult, ONLY_TALK, problem);
            End::Failed(Outcome::InvalidResult, Some(reading), detail)
        }
        other => other,
    }
}

//! The inbox: comments that hold commands, read since the ledger's mark. An event only wakes a
//! cycle up; what was said is always read here, so an evicted or repeated event changes nothing.
//!
//! A comment becomes one append: what was received, what it does, and how far was read. The first
//! event of the append leads: whoever writes it second changes nothing. The answer is given after
//! that, and is owed until the ledger says that it was given.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::access::Accesses;
use super::answers::{self, Voice};
use super::setup::Parts;
use super::show::{DASHBOARD, LINES};
use super::steer::{self, Steer};
use super::{CycleError, Journal, close};
use crate::commands::{self, Access, Command, Occasion, Parsed, Reply, Sender, SenderKind, Verb};
use crate::forge::{Comment, ForgeError};
use crate::ledger::{
    Applied, AttemptBudget, BranchAsk, EVENT_VERSION, Event, EventKind, NodeRecord, NodeState,
    Received, Run, node_states,
};
use crate::model::{NodeId, Plan, hex_digest};
use crate::report::{marker, notes};

/// Comments can show later in a list than ones that were made after them.
const LATE: SignedDuration = SignedDuration::from_mins(2);
/// Comments without commands that are read again before the mark is moved past them: a page.
const READ_AGAIN: usize = 100;

/// Reads and does what people said. `true` when the run changed by it.
///
/// # Errors
/// When the ledger fails. Trouble of the forge leaves comments for the next cycle.
pub(super) async fn read(
    parts: &Parts,
    journal: &Journal,
    plan: &Plan,
) -> Result<bool, CycleError> {
    let Some(since) = mark(&journal.state()) else { return Ok(false) };
    let comments = parts.forge.comments_since(since).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "the comments were not read; the next cycle reads them");
        Vec::new()
    });
    let mut inbox = Inbox {
        parts,
        journal,
        plan,
        access: Accesses::new(&*parts.forge),
        own: Vec::new(),
        ignored: Vec::new(),
    };
    let (mut steered, mut read_to) = (false, None);
    for comment in &comments {
        match inbox.take(comment).await {
            Ok(changed) => steered |= changed,
            Err(CycleError::Forge(error)) => {
                // In order: what comes later waits too.
                tracing::warn!(comment = comment.id, %error, "a comment waits for the next cycle");
                break;
            }
            Err(error) => return Err(error),
        }
        read_to = Some(comment.updated_at);
    }
    let mut unsaid = Vec::new();
    match inbox.ticks().await {
        Ok(changed) => steered |= changed,
        // Deleted: forgotten, so that another one is made.
        Err(CycleError::Forge(ForgeError::NotFound(_))) => unsaid.push(EventKind::Shown {
            what: DASHBOARD.to_owned(),
            id: String::new(),
            digest: String::new(),
        }),
        Err(CycleError::Forge(error)) => tracing::warn!(%error, "the dashboard was not read"),
        Err(error) => return Err(error),
    }
    unsaid.append(&mut inbox.ignored);
    if let Some(until) = read_to.filter(|_| comments.len() >= READ_AGAIN) {
        unsaid.push(EventKind::InboxRead { until });
    }
    if !unsaid.is_empty() {
        journal.write(unsaid).await?;
    }
    let Inbox { own, .. } = inbox;
    let (config, forge, clock) = (&parts.config, &*parts.forge, &parts.clock);
    answers::give(&Voice { config, forge, clock, journal }, &own).await?;
    Ok(steered)
}

/// Since when comments are read: nothing said before the run began is meant for it.
fn mark(run: &Run) -> Option<Timestamp> {
    let opened = run.opened.filter(|_| run.closed.is_none())?;
    let read = run.inbox.and_then(|inbox| inbox.checked_sub(LATE).ok());
    Some(read.map_or(opened, |read| read.max(opened)))
}

struct Inbox<'a> {
    parts: &'a Parts,
    journal: &'a Journal,
    plan: &'a Plan,
    access: Accesses<'a>,
    /// Comments that this cycle has dealt with, and answers.
    own: Vec<(u64, String)>,
    /// What is not even answered, noted in one go: a storm costs one append.
    ignored: Vec<EventKind>,
}

/// Something that was said to the run.
struct Said {
    /// The comment; 0 for the dashboard's boxes.
    comment: u64,
    on: u64,
    digest: String,
    author: String,
    /// Its text may not be its author's.
    unknown_editor: bool,
    /// What is written with it.
    also: Vec<EventKind>,
    /// When.
    at: Timestamp,
}

impl Inbox<'_> {
    /// Deals with one comment. `true` when it changed the run.
    async fn take(&mut self, comment: &Comment) -> Result<bool, CycleError> {
        let settings = &self.parts.config.commands;
        if comment.by_bot || marker::is_ours(&comment.body) {
            return Ok(false);
        }
        let mut parsed = commands::parse(&comment.body, None, &settings.prefix);
        if parsed.is_empty() {
            return Ok(false);
        }
        let digest = hex_digest([comment.body.as_bytes()]);
        let digest: String = digest.chars().take(32).collect();
        let run = self.journal.state().clone();
        let before: Vec<&Received> =
            run.received.iter().filter(|r| r.comment == comment.id).collect();
        if before.iter().any(|r| r.body_digest == digest) {
            return Ok(false);
        }
        // An edit says only what it adds.
        let mut said = before;
        parsed.commands.retain(|c| first_said(&mut said, c.verb.name(), &c.args));
        parsed
            .invalid
            .retain(|i| first_said(&mut said, "invalid", std::slice::from_ref(&i.reason)));
        if parsed.is_empty() {
            return Ok(false);
        }
        let mut said = Said {
            comment: comment.id,
            on: comment.on,
            digest,
            author: comment.author.clone(),
            unknown_editor: false,
            also: vec![EventKind::InboxRead { until: comment.updated_at }],
            at: comment.updated_at,
        };
        let mut access = self.access.of(&comment.author).await?;
        match &self.parts.options.woken.editor {
            // Who edits another's words answers for them too.
            Some((id, editor)) if *id == comment.id => {
                access = access.min(self.access.of(editor).await?);
            }
            // Whoever can edit another's comment has write permission; where more is asked for,
            // the author's does not stand for the editor's.
            _ => {
                let more = Access::from(settings.permission) > Access::Write;
                said.unknown_editor = comment.edited && more && access > Access::Write;
            }
        }
        self.obey(&said, &parsed, access).await
    }

    /// Reads the boxes that people ticked on the dashboard, as commands of whoever edited it last.
    async fn ticks(&mut self) -> Result<bool, CycleError> {
        let run = self.journal.state().clone();
        let number = |what: &str| run.shown.get(what)?.id.parse::<u64>().ok();
        let (Some(dashboard), Some(lines)) = (number(DASHBOARD), run.shown.get(LINES)) else {
            return Ok(false);
        };
        // An update of nothing reads.
        let issue = self.parts.forge.update_issue(dashboard, None, None).await?;
        let ticked = notes::ticked(&issue.body, &lines.digest);
        if ticked.is_empty() {
            return Ok(false);
        }
        let edit = self.parts.forge.issue_edit(dashboard).await?;
        let Some(edit) = edit.filter(|edit| !edit.by_bot) else { return Ok(false) };
        let prefix = &self.parts.config.commands.prefix;
        let text: Vec<String> = ticked.iter().map(|tick| format!("{prefix} {tick}")).collect();
        let parsed = commands::parse(&text.join("\n"), None, prefix);
        let at = edit.at.to_string();
        let digest = hex_digest(text.iter().map(String::as_bytes).chain([at.as_bytes()]));
        let access = self.access.of(&edit.by).await?;
        let said = Said {
            comment: 0,
            on: dashboard,
            digest: digest.chars().take(32).collect(),
            author: edit.by,
            unknown_editor: false,
            // Forgotten, so that it is written again without the ticks.
            also: vec![EventKind::Shown {
                what: DASHBOARD.to_owned(),
                id: dashboard.to_string(),
                digest: String::new(),
            }],
            at: edit.at,
        };
        self.obey(&said, &parsed, access).await
    }

    /// Decides and writes what was said, by a person with this access. `true` when it changed the
    /// run.
    async fn obey(
        &mut self,
        said: &Said,
        parsed: &Parsed,
        access: Access,
    ) -> Result<bool, CycleError> {
        let settings = &self.parts.config.commands;
        let run = self.journal.state().clone();
        let required = Access::from(settings.permission);
        let sender = Sender { kind: SenderKind::User, login: &said.author, access };
        let decision = commands::decide(parsed, sender, Occasion::default(), required);
        let note = |line: usize, verb: &str, args: Vec<String>, result: String| {
            EventKind::CommandReceived {
                comment: said.comment,
                on: said.on,
                body_digest: said.digest.clone(),
                line: u32::try_from(line).unwrap_or(u32::MAX),
                verb: verb.to_owned(),
                args,
                actor: said.author.clone(),
                result,
            }
        };
        let by_actor = |r: &&Received| r.actor == said.author;
        let mut events = match decision.reply {
            _ if said.unknown_editor => {
                let told = "Not done: somebody edited this comment, and who did is not known. Write a \
                            new one.";
                vec![note(0, "denied", Vec::new(), told.to_owned())]
            }
            Reply::None => vec![note(0, "ignored", Vec::new(), String::new())],
            // Once a person is enough.
            Reply::Denied if run.received.iter().any(|r| by_actor(&r) && r.verb == "denied") => {
                vec![note(0, "ignored", Vec::new(), String::new())]
            }
            Reply::Denied => {
                let word = serde_json::to_value(settings.permission).ok();
                let word = word.as_ref().and_then(|w| w.as_str()).unwrap_or("write").to_owned();
                let told = format!("Commands need {word} permission on this repository.");
                vec![note(0, "denied", Vec::new(), told)]
            }
            Reply::Error | Reply::Hint => parsed
                .invalid
                .iter()
                .map(|i| {
                    let meant = i.suggestion.as_ref().map(|s| format!("; did you mean {s}?"));
                    let told = format!("{}{}", i.reason, meant.unwrap_or_default());
                    note(i.line, "invalid", vec![i.reason.clone()], told)
                })
                .collect(),
            Reply::Ack => {
                let hour = self.parts.clock.now().checked_sub(SignedDuration::from_hours(1));
                let recent = run.received.iter().filter(|r| {
                    r.actor == said.author && hour.as_ref().is_ok_and(|hour| r.at > *hour)
                });
                let (recent, limit) = (recent.count(), settings.fuse.commands_per_hour);
                let left = usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(recent);
                if left < parsed.commands.len() {
                    let told = format!(
                        "Not done: {limit} commands an hour of one person are the limit \
                         (commands.fuse). Try again later."
                    );
                    // Told once; a storm gets no echo.
                    let verb = if left > 0 || recent == 0 { "denied" } else { "ignored" };
                    vec![note(0, verb, Vec::new(), told)]
                } else {
                    self.events(&run, &parsed.commands, said, note)
                }
            }
        };
        if let [EventKind::CommandReceived { verb, .. }] = events.as_slice()
            && verb == "ignored"
        {
            self.ignored.append(&mut events);
            // A box is cleared even so, or it would be asked about for ever.
            if said.comment == 0 {
                self.ignored.extend(said.also.clone());
            }
            return Ok(false);
        }
        // The command that was received leads; what it does follows.
        events.sort_by_key(|event| !matches!(event, EventKind::CommandReceived { .. }));
        let changes = events.iter().any(|e| !matches!(e, EventKind::CommandReceived { .. }));
        events.extend(said.also.clone());
        let written = self.journal.write_led(events).await?;
        if written.applied.first() != Some(&Applied::Yes) {
            return Ok(false);
        }
        self.own.push((said.comment, said.digest.clone()));
        Ok(changes)
    }

    /// What the commands do, with each one's result as it will be after the ones before it.
    fn events(
        &self,
        run: &Run,
        commands: &[Command],
        said: &Said,
        note: impl Fn(usize, &str, Vec<String>, String) -> EventKind,
    ) -> Vec<EventKind> {
        let mut after = run.clone();
        let mut events = Vec::new();
        for command in commands {
            let (result, effects) = match self.effect(&after, command, said) {
                Ok((result, effects)) => {
                    let applied: Vec<Applied> =
                        effects.iter().map(|e| after.apply(&self.event(e.clone()))).collect();
                    match applied.first() {
                        Some(Applied::No(why)) => (format!("nothing changed: {why}"), Vec::new()),
                        _ => (result, effects),
                    }
                }
                Err(CycleError::Input { what, remedy }) => {
                    (format!("{what}; {remedy}"), Vec::new())
                }
                Err(error) => (error.to_string(), Vec::new()),
            };
            events.push(note(command.line, command.verb.name(), command.args.clone(), result));
            events.extend(effects);
        }
        events
    }

    fn event(&self, kind: EventKind) -> Event {
        let (at, cycle) = (self.parts.clock.now(), self.parts.cycle_id.clone());
        Event { v: EVENT_VERSION, at, cycle, kind }
    }

    /// What one command does and says.
    fn effect(
        &self,
        run: &Run,
        command: &Command,
        said: &Said,
    ) -> Result<(String, Vec<EventKind>), CycleError> {
        let by = said.author.as_str();
        let config = &self.parts.config;
        let missing = || CycleError::Internal("the command lacks its argument".to_owned());
        let steer = match command.verb {
            Verb::Status => return Ok((self.status(run), Vec::new())),
            Verb::Help => return Ok((String::new(), Vec::new())),
            Verb::Approve => return self.ask(run, command, said, BranchAsk::Approve),
            Verb::Adopt => return self.ask(run, command, said, BranchAsk::Adopt),
            Verb::Reset => return self.ask(run, command, said, BranchAsk::Reset),
            Verb::Resume => Steer::Resume,
            Verb::Pause => Steer::Pause,
            Verb::Cancel => Steer::Cancel,
            Verb::Retry | Verb::Skip => {
                let node = command.node().ok_or_else(missing)?;
                steer::check_node(self.plan, &node)?;
                let state = self.states(run).get(&node).copied();
                if matches!(state, Some(NodeState::Accepted | NodeState::InReview)) {
                    return Err(CycleError::input(
                        format!("{node} is done and waits for a review; nothing was changed"),
                        "close its pull request first",
                    ));
                }
                if command.verb == Verb::Retry { Steer::Retry(node) } else { Steer::Skip(node) }
            }
            Verb::Unsettle => {
                let pool = command.pool().ok_or_else(missing)?;
                steer::check_pool(config, &pool)?;
                Steer::Unsettle(pool)
            }
            Verb::Budget => Steer::Budget(command.amount().ok_or_else(missing)?),
        };
        let mut told = steer.done();
        if matches!(steer, Steer::Budget(_)) && config.dispatch.budget.usd.is_none() {
            told.push_str("; no budget in US dollars is configured, so nothing waits for it");
        }
        Ok((told, steer.events(run, by, self.parts.clock.now())))
    }

    /// A wish for a branch. It is done, and answered, once branches were looked at. On a pull
    /// request it may leave the node out.
    fn ask(
        &self,
        run: &Run,
        command: &Command,
        said: &Said,
        ask: BranchAsk,
    ) -> Result<(String, Vec<EventKind>), CycleError> {
        let of_this =
            |record: &NodeRecord| record.pr.as_ref().is_some_and(|pr| pr.number == said.on);
        let here = || run.nodes.iter().find(|(_, n)| of_this(n)).map(|(id, _)| id.clone());
        let node = command.node().or_else(here).ok_or_else(|| {
            CycleError::input("this is not a node's pull request", "name the node, e.g. N-001")
        })?;
        steer::check_node(self.plan, &node)?;
        let asked = EventKind::BranchAsked {
            node,
            ask,
            by: said.author.clone(),
            comment: said.comment,
            line: u32::try_from(command.line).unwrap_or(u32::MAX),
            said: said.at,
        };
        // What is answered, should a later word take its place before it is done.
        Ok(("not done: a later word about the same branch took its place".to_owned(), vec![asked]))
    }

    fn states(&self, run: &Run) -> BTreeMap<NodeId, NodeState> {
        let config = &self.parts.config;
        let max = &config.dispatch.max_attempts;
        let budget = AttemptBudget { contract: max.contract, infrastructure: max.infrastructure };
        let depends = match config.policy.dependencies {
            crate::config::Dependencies::Accepted => crate::ledger::DependsOn::Accepted,
            crate::config::Dependencies::Landed => crate::ledger::DependsOn::Landed,
        };
        node_states(run, self.plan, budget, depends)
    }

    fn status(&self, run: &Run) -> String {
        let counts = close::counts(&self.states(run));
        let counts: Vec<String> =
            counts.iter().map(|(state, n)| format!("{n} {}", state.replace('_', " "))).collect();
        let standing = match &run.pause {
            _ if run.cancelled.is_some() => "cancelled".to_owned(),
            Some(_) if run.is_stopped() => "paused by a person".to_owned(),
            Some(pause) => match pause.not_before {
                Some(at) => format!("paused until {at}"),
                None => "paused".to_owned(),
            },
            None => "open".to_owned(),
        };
        format!("{standing}; nodes: {}", counts.join(", "))
    }
}

/// False, and one fewer in `said`, when the comment said it before.
fn first_said(said: &mut Vec<&Received>, verb: &str, args: &[String]) -> bool {
    let before = said.iter().position(|r| r.verb == verb && r.args == args);
    if let Some(at) = before {
        said.swap_remove(at);
    }
    before.is_none()
}

//! Who may command, and what a comment is answered with.

use super::Parsed;
use crate::config::Permission;

/// What the commenter may do on the repository: `collaborators/{user}/permission`, never the
/// comment's `author_association`, which is wrong for private members. Ordered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// None, or it could not be asked: fail closed.
    #[default]
    None,
    /// Read.
    Read,
    /// Triage.
    Triage,
    /// Write.
    Write,
    /// Maintain.
    Maintain,
    /// Admin.
    Admin,
}

impl Access {
    /// From the API's word; unknown words are no access.
    #[must_use]
    pub fn from_api(word: &str) -> Self {
        match word {
            "read" | "pull" => Self::Read,
            "triage" => Self::Triage,
            "write" | "push" => Self::Write,
            "maintain" => Self::Maintain,
            "admin" => Self::Admin,
            _ => Self::None,
        }
    }
}

impl From<Permission> for Access {
    fn from(permission: Permission) -> Self {
        match permission {
            Permission::Write => Self::Write,
            Permission::Maintain => Self::Maintain,
            Permission::Admin => Self::Admin,
        }
    }
}

/// The kind of account behind the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SenderKind {
    /// A person.
    User,
    /// A bot, an app, or anything else that is no person.
    Other,
}

impl SenderKind {
    /// From the event's `sender.type`.
    #[must_use]
    pub fn from_event(kind: &str) -> Self {
        if kind == "User" { Self::User } else { Self::Other }
    }
}

/// Who commented.
#[derive(Debug, Clone, Copy)]
pub struct Sender<'a> {
    /// A person?
    pub kind: SenderKind,
    /// The login. `ghost` stands for accounts that are gone.
    pub login: &'a str,
    /// What they may do.
    pub access: Access,
}

/// Around the comment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Occasion {
    /// The comment was deleted.
    pub deleted: bool,
    /// It stands on an issue of ours that is closed. Not for pull requests: a closed one is just
    /// what `retry` is for.
    pub closed: bool,
}

/// The one visible result of a comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// Nothing.
    None,
    /// The commands are acknowledged.
    Ack,
    /// What is wrong with it.
    Error,
    /// How commands are written.
    Hint,
    /// Not allowed; at most once per person.
    Denied,
}

/// Whether to act on a comment, and how to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// The sender may give every command of the comment.
    pub authorised: bool,
    /// Do what the comment asks for.
    pub act: bool,
    /// The answer.
    pub reply: Reply,
}

/// Decides on a comment. `required` is the least access for everything but `help` and `status`,
/// which whoever can read may ask for. A comment with one invalid line acts on nothing.
#[must_use]
pub fn decide(
    parsed: &Parsed,
    sender: Sender<'_>,
    occasion: Occasion,
    required: Access,
) -> Decision {
    let only_reads =
        !parsed.commands.is_empty() && parsed.commands.iter().all(|c| c.verb.only_reads());
    let needed = if only_reads { Access::Read } else { required.max(Access::Read) };
    let authorised = sender.kind == SenderKind::User && sender.access >= needed;
    let answer = |reply| Decision { authorised, act: reply == Reply::Ack, reply };
    if parsed.is_empty()
        || occasion.deleted
        || sender.kind != SenderKind::User
        || sender.login == "ghost"
    {
        return answer(Reply::None);
    }
    if !authorised {
        // Slips of strangers are nobody's business.
        let denied = !parsed.commands.is_empty();
        return answer(if denied { Reply::Denied } else { Reply::None });
    }
    if !parsed.invalid.is_empty() {
        let hint = parsed.commands.is_empty() && parsed.invalid.iter().all(|i| i.hint);
        return answer(if hint { Reply::Hint } else { Reply::Error });
    }
    answer(if occasion.closed && !only_reads { Reply::Error } else { Reply::Ack })
}

//! The few things that only GraphQL tells.

use serde::Deserialize;
use serde_json::{Value, json};

use super::GitHub;
use super::call::{Call, Trouble};
use super::client::parse;
use crate::forge::Edit;

/// Who edited an issue's text last.
const LAST_EDIT: &str = "query($owner: String!, $name: String!, $number: Int!) { \
    repository(owner: $owner, name: $name) { issue(number: $number) { \
    lastEditedAt editor { __typename login } } } }";

impl GitHub {
    /// The last edit of an issue's text; `None` when it stands as it was first written.
    pub(super) async fn last_edit(&self, number: u64) -> Result<Option<Edit>, Trouble> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Seen {
            last_edited_at: Option<jiff::Timestamp>,
            editor: Option<Editor>,
        }
        #[derive(Deserialize)]
        struct Editor {
            #[serde(rename = "__typename")]
            kind: String,
            login: String,
        }
        let variables = json!({
            "owner": self.settings.owner, "name": self.settings.repository, "number": number,
        });
        let call = Call::graphql(LAST_EDIT, variables, "ask who edited an issue", "issues: read")
            .on(format!("issue {number}"));
        let answer: Value = parse(&call, &self.client.send(&call).await?)?;
        let issue = answer.pointer("/data/repository/issue").cloned().unwrap_or_default();
        let Ok(seen) = serde_json::from_value::<Seen>(issue) else {
            // GraphQL refuses with status 200.
            let told = answer.pointer("/errors/0/message").and_then(Value::as_str);
            let told = told.unwrap_or("an answer that is not understood");
            return Err(Trouble::Ambiguous(format!("{} ({}): {told}", call.action, call.subject)));
        };
        Ok(seen.last_edited_at.zip(seen.editor).map(|(at, editor)| Edit {
            by_bot: editor.kind != "User" || editor.login.ends_with("[bot]"),
            by: editor.login,
            at,
        }))
    }
}

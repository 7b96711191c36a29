//! Reviews of pull requests: GraphQL tells in one request what REST tells in one for each.

use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::{Value, json};

use super::GitHub;
use super::call::{Call, Trouble};
use super::client::parse;
use crate::forge::{Remark, Review, Reviews};

/// Pull requests that are asked about at once.
const AT_ONCE: usize = 50;

/// What is read of each. GitHub itself leaves out whom the repository does not let write.
const ASKED: &str = "fragment asked on PullRequest { number updatedAt \
    latestOpinionatedReviews(first: 20, writersOnly: true) { nodes { \
    id state body author { __typename login } \
    comments(first: 30) { nodes { path line body } } } } }";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Seen {
    number: u64,
    updated_at: jiff::Timestamp,
    latest_opinionated_reviews: Option<Nodes<Opinion>>,
}

#[derive(Deserialize)]
struct Nodes<T> {
    nodes: Vec<Option<T>>,
}

#[derive(Deserialize)]
struct Opinion {
    id: String,
    state: String,
    body: String,
    /// None for an account that is gone.
    author: Option<Author>,
    comments: Nodes<Line>,
}

#[derive(Deserialize)]
struct Author {
    #[serde(rename = "__typename")]
    kind: String,
    login: String,
}

#[derive(Deserialize)]
struct Line {
    path: String,
    line: Option<u64>,
    body: String,
}

impl GitHub {
    /// The reviews of these pull requests. One that GitHub does not show is told and left out.
    pub(super) async fn reviews_of(&self, pulls: &[u64]) -> Result<Vec<Reviews>, Trouble> {
        let mut found = Vec::new();
        for some in pulls.chunks(AT_ONCE) {
            let mut query = "query($owner: String!, $name: String!) { \
                             repository(owner: $owner, name: $name) {"
                .to_owned();
            for number in some {
                let _ = write!(query, " p{number}: pullRequest(number: {number}) {{ ...asked }}");
            }
            let _ = write!(query, " }} }} {ASKED}");
            let variables = json!({"owner": self.settings.owner, "name": self.settings.repository});
            let call = Call::graphql(&query, variables, "read reviews", "pull-requests: read")
                .on("the reviews");
            let answer: Value = parse(&call, &self.client.send(&call).await?)?;
            let told = answer.pointer("/errors/0/message").and_then(Value::as_str);
            let Some(shown) = answer.pointer("/data/repository").and_then(Value::as_object) else {
                let told = told.unwrap_or("an answer that is not understood");
                return Err(Trouble::Ambiguous(format!("{}: {told}", call.action)));
            };
            for number in some {
                let one = shown.get(&format!("p{number}")).cloned().unwrap_or_default();
                match serde_json::from_value::<Seen>(one) {
                    Ok(seen) if seen.number == *number => found.push(seen.into()),
                    _ => {
                        let why = told.unwrap_or("an answer that is not understood");
                        tracing::warn!("no reviews of pull request {number}: {why}");
                    }
                }
            }
        }
        Ok(found)
    }
}

impl From<Seen> for Reviews {
    fn from(seen: Seen) -> Self {
        let all = seen.latest_opinionated_reviews.map(|all| all.nodes).unwrap_or_default();
        let asking = all.into_iter().flatten().filter_map(|opinion| {
            let author = opinion.author.filter(|author| author.kind == "User")?;
            (opinion.state == "CHANGES_REQUESTED").then(|| Review {
                id: opinion.id,
                by: author.login,
                body: opinion.body,
                remarks: opinion.comments.nodes.into_iter().flatten().map(Remark::from).collect(),
            })
        });
        Self { number: seen.number, updated_at: seen.updated_at, asking: asking.collect() }
    }
}

impl From<Line> for Remark {
    fn from(line: Line) -> Self {
        Self { path: line.path, line: line.line, body: line.body }
    }
}

#[cfg(test)]
mod tests {
    use super::Seen;
    use crate::forge::Reviews;

    #[test]
    fn only_people_who_ask_for_changes_count() {
        let of = |state: &str, author: &str| {
            format!(
                r#"{{"id":"{state}","state":"{state}","body":"b","author":{author},
                "comments":{{"nodes":[null,{{"path":"a","line":null,"body":"c"}}]}}}}"#
            )
        };
        let person = r#"{"__typename":"User","login":"ann"}"#;
        let all = [
            of("CHANGES_REQUESTED", person),
            of("APPROVED", person),
            of("DISMISSED", person),
            of("CHANGES_REQUESTED", r#"{"__typename":"Bot","login":"linter"}"#),
            of("CHANGES_REQUESTED", "null"),
            "null".to_owned(),
        ];
        let text = format!(
            r#"{{"number":7,"updatedAt":"2026-11-30T10:00:00Z",
            "latestOpinionatedReviews":{{"nodes":[{}]}}}}"#,
            all.join(",")
        );
        let reviews = Reviews::from(serde_json::from_str::<Seen>(&text).unwrap());
        assert_eq!(reviews.asking.len(), 1);
        assert_eq!((reviews.asking[0].by.as_str(), reviews.asking[0].remarks.len()), ("ann", 1));
    }
}

//! What is said on a pull request about its branch.

use super::page::Page;
use super::text::{code, inline};
use crate::model::NodeId;

/// Why a pull request is closed by us: its change is on the base branch by other hands.
#[must_use]
pub fn needless_comment(marker: &str, node: &NodeId, evidence: &str) -> String {
    let mut page = Page::body();
    page.add(&format!(
        "{marker}\nThis is not needed any more: {}. {node} counts as done without it.\n",
        inline(evidence, 300)
    ));
    page.finish()
}

/// What a person's commits on our branch mean. `prefix` is the first word of commands.
#[must_use]
pub fn left_alone_comment(marker: &str, node: &NodeId, head: &str, prefix: &str) -> String {
    let mut page = Page::body();
    let short: String = head.chars().take(12).collect();
    page.add(&format!(
        "{marker}\nThe head of this branch is {}, which is not overhaul's. From here on the branch \
         is left alone: it is not rebuilt when its base moves. Merge or close it as ever, or comment\n\n\
         - {} to take the commits into the node; they are checked like any result,\n\
         - {} to take them off the branch; they are kept under another name.\n",
        code(&short, 12),
        code(&format!("{prefix} adopt {node}"), 120),
        code(&format!("{prefix} reset {node}"), 120),
    ));
    page.finish()
}

/// A review that asks for changes was heard.
#[must_use]
pub fn changes_comment(marker: &str, node: &NodeId, by: &[String]) -> String {
    let mut page = Page::body();
    let (shown, more) = by.split_at(by.len().min(5));
    let mut names: Vec<String> = shown.iter().map(|login| code(login, 40)).collect();
    if !more.is_empty() {
        names.push(format!("{} more", more.len()));
    }
    page.add(&format!(
        "{marker}\n{} asked for changes: {node} goes back to work with that. What comes of it is \
         checked as ever and pushed here; until then this branch holds the work that was reviewed.\n",
        names.join(", ")
    ));
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::{changes_comment, left_alone_comment, needless_comment};
    use crate::model::NodeId;

    #[test]
    fn what_is_said_of_branches_reads_well() {
        let node = NodeId::new("N-001").unwrap();
        let head = "a".repeat(40);
        let all = [
            needless_comment("<!-- m -->", &node, "all that it changes is on main already"),
            left_alone_comment("<!-- m -->", &node, &head, "/overhaul"),
            changes_comment("<!-- m -->", &node, &["ann".to_owned(), "@org/`all".to_owned()]),
        ];
        insta::assert_snapshot!(all.join("\n====\n"));
    }
}

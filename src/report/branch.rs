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

#[cfg(test)]
mod tests {
    use super::{left_alone_comment, needless_comment};
    use crate::model::NodeId;

    #[test]
    fn what_is_said_of_branches_reads_well() {
        let node = NodeId::new("N-001").unwrap();
        let head = "a".repeat(40);
        let all = [
            needless_comment("<!-- m -->", &node, "all that it changes is on main already"),
            left_alone_comment("<!-- m -->", &node, &head, "/overhaul"),
        ];
        insta::assert_snapshot!(all.join("\n====\n"));
    }
}

//! What becomes of branches and pull requests when the base moves, people push, and files vanish.

use std::path::PathBuf;

use serde_json::Value;

use crate::support::{Cycle, World, config, findings, git};

const UPPER: &str =
    "shift\nfor f in \"$@\"; do tr a-z A-Z < \"$f\" > \"$f.new\" && mv \"$f.new\" \"$f\"; done\n";

/// A world, its run, and a clone of a person's.
struct Story {
    world: World,
    run: String,
    people: PathBuf,
}

impl Story {
    /// One file and one finding a letter; the first cycle is over.
    fn new(letters: &[&str], worker: &str, verify: &str, more: &str) -> Self {
        let files: Vec<(String, String)> =
            letters.iter().map(|l| (format!("{l}.txt"), format!("{l}\n"))).collect();
        let files: Vec<(&str, &str)> =
            files.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        let list: Vec<(String, &str, String)> = files
            .iter()
            .map(|(file, _)| (file[..1].to_uppercase(), *file, format!("fix {file}")))
            .collect();
        let list: Vec<(&str, &str, &str)> =
            list.iter().map(|(a, b, c)| (a.as_str(), *b, c.as_str())).collect();
        Self::with(&files, &list, worker, verify, more)
    }

    fn with(
        files: &[(&str, &str)],
        list: &[(&str, &str, &str)],
        worker: &str,
        verify: &str,
        more: &str,
    ) -> Self {
        let world = World::new(files);
        let script = world.write("worker.sh", worker);
        world.write("overhaul.yml", &config(&script, verify, more));
        world.write("checkout/findings.json", &findings(list));
        let first = world.next_step();
        assert_eq!(first.nodes("in_review"), list.len() as u64, "{}", first.stderr);
        let run = first.report["run-id"].as_str().unwrap().to_owned();
        git(world.dir.path(), &["clone", "-q", "remote.git", "people"]);
        let people = world.path("people");
        Self { world, run, people }
    }

    fn branch(&self, node: &str) -> String {
        format!("overhaul/{}/{node}", self.run)
    }

    fn head(&self, node: &str) -> String {
        self.world.branches()[&self.full(node)].clone()
    }

    fn full(&self, node: &str) -> String {
        format!("refs/heads/{}", self.branch(node))
    }

    /// A person's commit on a branch.
    fn push(&self, branch: &str, file: &str, text: &str) -> String {
        git(&self.people, &["fetch", "-q", "origin"]);
        git(&self.people, &["checkout", "-q", "-B", "mine", &format!("origin/{branch}")]);
        std::fs::write(self.people.join(file), text).unwrap();
        git(&self.people, &["add", "-A"]);
        git(&self.people, &["commit", "-q", "-m", "By hand"]);
        git(&self.people, &["push", "-q", "origin", &format!("HEAD:refs/heads/{branch}")]);
        git(&self.people, &["rev-parse", "HEAD"]).trim().to_owned()
    }

    /// The file of a node's pull request, with its number.
    fn pull(&self, node: &str) -> (u64, String) {
        let head = format!("head: {}\n", self.branch(node));
        let pulls = self.world.pulls().into_iter();
        let found = pulls.rev().find(|(_, text)| text.contains(&head));
        let (name, text) = found.unwrap_or_else(|| panic!("no pull request of {node}"));
        (name.trim_end_matches(".md").parse().unwrap(), text)
    }

    fn end(&self, node: &str, state: &str) {
        let (number, text) = self.pull(node);
        let path = self.world.path(&format!("forge/pulls/{number:04}.md"));
        std::fs::write(path, text.replacen("state: open", &format!("state: {state}"), 1)).unwrap();
    }

    fn shell(&self, args: &[&str]) -> Value {
        let mut all = args.to_vec();
        all.push("--json");
        let output = self.world.run(&all);
        let stderr = String::from_utf8_lossy(&output.stderr);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{stderr}"))
    }

    fn step(&self) -> Cycle {
        let cycle = self.world.next_step();
        assert_eq!(cycle.code, Some(0), "{}", cycle.stderr);
        cycle
    }

    /// Texts of comments with a marker.
    fn comments(&self, marker: &str) -> Vec<String> {
        let Ok(folder) = std::fs::read_dir(self.world.path("forge/comments")) else {
            return Vec::new();
        };
        let texts = folder.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
        texts.filter(|text| text.contains(marker)).collect()
    }
}

#[test]
fn a_conflict_with_a_moved_base_goes_back_to_work_with_the_conflict_in_the_prompt() {
    // Only a worker that is told of the conflict does the second attempt.
    let worker = format!(
        "case \"$(cat a.txt)\" in another) grep -q 'Conflicts in: a.txt' \"$OVERHAUL_PROMPT_FILE\" || \
         exit 3;; esac\n{UPPER}"
    );
    let story = Story::new(&["a", "b"], &worker, "true", "");
    let (number, _) = story.pull("N-001");
    let untouched = story.head("N-002");
    story.push("main", "a.txt", "another\n");
    let next = story.step();
    assert_eq!(next.nodes("in_review"), 2, "{}", next.stderr);
    assert_eq!(story.world.node("N-001")["attempts"], 2);
    assert_eq!(story.world.show(&story.branch("N-001"), "a.txt"), "ANOTHER\n");
    let range = format!("main..{}", story.branch("N-001"));
    let remote = story.world.path("remote.git");
    assert_eq!(git(&remote, &["rev-list", "--count", &range]).trim(), "1");
    let (again, text) = story.pull("N-001");
    assert_eq!((again, story.world.pulls().len()), (number, 2), "the same pull request");
    let base = git(&remote, &["rev-parse", "main"]).trim()[..12].to_owned();
    assert!(text.contains(&base), "its text shows the new base: {text}");
    // What merges as it is is left as it is.
    assert_eq!(story.head("N-002"), untouched);
    let quiet = story.step();
    assert_eq!((quiet.status(), quiet.report["attempts"].as_u64()), ("waiting", Some(0)));
}

#[test]
fn branches_follow_their_base_by_policy_and_are_verified_there() {
    let story = Story::new(
        &["a", "b"],
        UPPER,
        "! grep -q broken c.txt 2>/dev/null || ! grep -q A a.txt",
        "pull-requests:\n  rebuild: behind\n",
    );
    let before = story.head("N-001");
    story.push("main", "d.txt", "new\n");
    let next = story.step();
    assert_eq!(
        (next.status(), &next.report["attempts"]),
        ("waiting", &0.into()),
        "{}",
        next.stderr
    );
    assert_ne!(story.head("N-001"), before);
    assert_eq!(story.world.show(&story.branch("N-001"), "d.txt"), "new\n");
    assert_eq!(story.world.show(&story.branch("N-001"), "a.txt"), "A\n");
    // On this base the change fails, and no attempt can help: the check says so.
    story.push("main", "c.txt", "broken\n");
    let broken = story.step();
    assert_eq!((broken.nodes("failed"), broken.nodes("in_review")), (1, 1), "{}", broken.stderr);
    let why = story.world.node("N-001")["last-failure"].as_str().unwrap().to_owned();
    assert!(why.contains("`check` failed"), "{why}");
}

#[test]
fn stacked_work_is_rebuilt_when_its_parent_landed_in_another_form() {
    // Two findings in one file are two nodes, one on the other.
    let worker = "echo \"$1\" >> a.txt\n";
    let more = "planning:\n  max-findings-per-node: 1\n";
    let list = [("A", "a.txt", "fix one"), ("B", "a.txt", "fix two")];
    let story = Story::with(&[("a.txt", "a\n")], &list, worker, "true", more);
    let (_, child) = story.pull("N-002");
    assert!(child.contains(&format!("base: {}\n", story.branch("N-001"))), "{child}");
    // Squashed: the parent's commit is nowhere in the base branch.
    git(&story.people, &["fetch", "-q"]);
    git(&story.people, &["checkout", "-q", "-B", "main", "origin/main"]);
    git(&story.people, &["merge", "-q", "--squash", &format!("origin/{}", story.branch("N-001"))]);
    git(&story.people, &["commit", "-q", "-m", "Squashed"]);
    git(&story.people, &["push", "-q", "origin", "main"]);
    story.end("N-001", "merged");
    let next = story.step();
    assert_eq!((next.nodes("landed"), next.nodes("in_review")), (1, 1), "{}", next.stderr);
    assert_eq!(next.report["attempts"], 0);
    let (_, child) = story.pull("N-002");
    assert!(child.contains("base: main\n"), "{child}");
    assert!(!child.contains("Stacked:"), "{child}");
    let range = format!("main..{}", story.branch("N-002"));
    let remote = story.world.path("remote.git");
    assert_eq!(git(&remote, &["rev-list", "--count", &range]).trim(), "1");
    assert_eq!(story.world.show(&story.branch("N-002"), "a.txt"), "a\nN-001\nN-002\n");
}

#[test]
fn what_is_on_the_base_by_other_hands_counts_as_done() {
    let story = Story::new(&["a", "b"], UPPER, "true", "");
    story.push("main", "a.txt", "A\n");
    let next = story.step();
    assert_eq!((next.nodes("satisfied"), next.nodes("in_review")), (1, 1), "{}", next.stderr);
    let (_, text) = story.pull("N-001");
    assert!(text.contains("state: closed"), "{text}");
    assert_eq!(story.comments("overhaul:needless").len(), 1);
    assert_eq!(story.step().nodes("satisfied"), 1);
}

#[test]
fn a_persons_commits_stop_rebuilds_until_they_are_taken_in() {
    let story = Story::new(&["a", "b"], UPPER, "! grep -q broken a.txt", "");
    let head = story.push(&story.branch("N-001"), "a.txt", "A by hand\n");
    // The base moves against it: nothing is touched, and that is said once.
    story.push("main", "a.txt", "another\n");
    for _ in 0..2 {
        let next = story.step();
        assert_eq!((next.nodes("in_review"), next.report["attempts"].as_u64()), (2, Some(0)));
        assert_eq!(story.head("N-001"), head);
    }
    let told = story.comments("overhaul:left-alone");
    assert_eq!(told.len(), 1);
    assert!(told[0].contains("/overhaul adopt N-001"), "{told:?}");
    let note = story.world.node("N-001")["branch"].as_str().unwrap().to_owned();
    assert!(note.contains("a person pushed"), "{note}");

    // They merged the base in themselves, and beyond the node's own file.
    git(
        &story.people,
        &["checkout", "-q", "-B", "mine", &format!("origin/{}", story.branch("N-001"))],
    );
    git(&story.people, &["fetch", "-q"]);
    git(&story.people, &["merge", "-q", "-X", "ours", "-m", "Merge main", "origin/main"]);
    git(&story.people, &["push", "-q", "origin", &format!("HEAD:{}", story.full("N-001"))]);
    let head = story.push(&story.branch("N-001"), "notes.txt", "why\n");
    assert_eq!(story.shell(&["adopt", "N-001"])["changed"], true);
    let next = story.step();
    assert_eq!(next.report["attempts"], 0, "{}", next.stderr);
    assert_eq!(story.head("N-001"), head, "the commits stay as they are");
    let (_, text) = story.pull("N-001");
    assert!(text.contains("notes.txt"), "{text}");
    assert_eq!(story.world.node("N-001")["branch"], Value::Null);

    // From here on it is rebuilt again, with the person's name on it.
    story.push("main", "a.txt", "yet another\n");
    let next = story.step();
    assert_eq!(next.nodes("in_review"), 2, "{}", next.stderr);
    assert_ne!(story.head("N-001"), head);
}

#[test]
fn commits_that_no_check_passes_are_not_taken_in_and_stay() {
    let story = Story::new(&["a", "b"], UPPER, "! grep -q broken a.txt", "");
    let ours = story.head("N-001");
    let head = story.push(&story.branch("N-001"), "a.txt", "broken\n");
    story.world.write("forge/comments/mine.md", "/overhaul adopt N-001\n");
    story.step();
    assert_eq!(story.head("N-001"), head);
    let replies = story.comments("overhaul:reply");
    assert_eq!(replies.len(), 1);
    assert!(
        replies[0].contains("not taken in") && replies[0].contains("exit code 1"),
        "{replies:?}"
    );
    // Another node's file is not a person's to change through this one.
    story.push(&story.branch("N-001"), "a.txt", "fine\n");
    let head = story.push(&story.branch("N-001"), "b.txt", "fine\n");
    story.world.write("forge/comments/mine2.md", "/overhaul adopt N-001\n");
    story.step();
    let replies = story.comments("overhaul:reply");
    assert!(replies.iter().any(|r| r.contains("b.txt")), "{replies:?}");

    // Thrown away, and still there under another name.
    story.world.write("forge/comments/mine3.md", "/overhaul reset N-001\n");
    story.step();
    assert_eq!(story.head("N-001"), ours);
    let kept = git(&story.world.path("remote.git"), &["for-each-ref", "refs/overhaul/quarantine"]);
    assert!(kept.contains(&head), "{kept}");
    let replies = story.comments("overhaul:reply");
    assert!(replies.iter().any(|r| r.contains("overhaul's again")), "{replies:?}");
    assert_eq!(story.step().report["attempts"], 0);
}

#[test]
fn an_amended_commit_of_ours_is_a_persons() {
    let story = Story::new(&["a", "b"], UPPER, "true", "");
    let branch = story.branch("N-001");
    git(&story.people, &["fetch", "-q"]);
    git(&story.people, &["checkout", "-q", "-B", "mine", &format!("origin/{branch}")]);
    std::fs::write(story.people.join("a.txt"), "A, better\n").unwrap();
    // The message, with all its trailers, stays ours.
    git(&story.people, &["commit", "-q", "-a", "--amend", "--no-edit"]);
    git(&story.people, &["push", "-q", "--force", "origin", &format!("HEAD:refs/heads/{branch}")]);
    let head = story.head("N-001");
    story.push("main", "a.txt", "another\n");
    story.step();
    assert_eq!(story.head("N-001"), head);
    assert_eq!(story.comments("overhaul:left-alone").len(), 1);
}

#[test]
fn an_approval_is_of_one_commit() {
    let story = Story::new(&["a", "b"], UPPER, "true", "");
    story.shell(&["approve", "N-001"]);
    story.step();
    let note = story.world.node("N-001")["branch"].as_str().unwrap().to_owned();
    assert!(note.contains("approved at"), "{note}");
    story.push(&story.branch("N-001"), "a.txt", "A by hand\n");
    story.step();
    let note = story.world.node("N-001")["branch"].as_str().unwrap().to_owned();
    assert!(!note.contains("approved"), "void: {note}");
    // Said before the push was seen: it may have meant another head.
    story.shell(&["approve", "N-002"]);
    story.push(&story.branch("N-002"), "b.txt", "B by hand\n");
    story.step();
    let note = story.world.node("N-002")["branch"].as_str().unwrap().to_owned();
    assert!(!note.contains("approved"), "{note}");
}

#[test]
fn a_pull_request_that_vanished_is_opened_again() {
    let story = Story::new(&["a", "b"], UPPER, "true", "");
    let (number, _) = story.pull("N-001");
    std::fs::remove_file(story.world.path(&format!("forge/pulls/{number:04}.md"))).unwrap();
    let next = story.step();
    assert_eq!(next.nodes("in_review"), 2, "{}", next.stderr);
    assert!(next.stderr.contains("its pull request is gone"), "{}", next.stderr);
    assert_eq!(story.world.pulls().len(), 2);
    let (_, text) = story.pull("N-001");
    assert!(text.contains("state: open"), "{text}");
}

#[test]
fn good_changes_that_break_each_other_are_seen_before_people_merge_them() {
    let world = World::new(&[("a.txt", "a\n"), ("b.txt", "b\n"), ("Cargo.toml", "[workspace]\n")]);
    let script = world.write("worker.sh", UPPER);
    let verify = "! { grep -q A a.txt && grep -q B b.txt; }";
    world.write("overhaul.yml", &config(&script, verify, ""));
    let list = [("A", "a.txt", "fix a"), ("B", "b.txt", "fix b")];
    world.write("checkout/findings.json", &findings(&list));
    let cycle = world.next_step();
    assert_eq!((cycle.nodes("in_review"), cycle.nodes("failed")), (1, 1), "{}", cycle.stderr);
}

//! Commands in comments that are files.

use crate::support::{World, config, findings};

#[test]
fn a_comment_file_steers_the_run_and_gets_an_answer() {
    let world = World::new(&[("a.txt", "a\n"), ("b.txt", "b\n")]);
    let worker = "case \"$1\" in N-002) exit 3;; esac\nfor f; do echo X > \"$f\"; done\n";
    let script = world.write("worker.sh", &worker.replace("for f;", "shift\nfor f;"));
    world.write("overhaul.yml", &config(&script, "true", ""));
    let list = [("A", "a.txt", "fix a"), ("B", "b.txt", "fix b")];
    world.write("checkout/findings.json", &findings(&list));
    let first = world.next_step();
    assert_eq!((first.nodes("in_review"), first.nodes("failed")), (1, 1), "{}", first.stderr);

    let note = world.write("forge/comments/my-note.md", "/overhaul skip N-002\n/overhaul help\n");
    let second = world.next_step();
    assert_eq!((second.nodes("in_review"), second.nodes("skipped")), (1, 1), "{}", second.stderr);
    assert!(std::fs::read_to_string(&note).unwrap().contains("eyes"), "acknowledged");
    let answers = || {
        let files = std::fs::read_dir(world.path("forge/comments")).unwrap();
        let texts = files.filter_map(|f| std::fs::read_to_string(f.unwrap().path()).ok());
        texts.filter(|text| text.contains("<!-- overhaul:reply")).collect::<Vec<_>>()
    };
    assert_eq!(answers().len(), 1);
    assert!(answers()[0].contains("N-002 is skipped") && answers()[0].contains("/overhaul resume"));
    world.next_step();
    assert_eq!(answers().len(), 1, "answered once");
}

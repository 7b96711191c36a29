//! Error texts, bounds and defaults.

mod meaning;
mod secrets;
mod structure;

use super::{Config, MAX_CONFIG_BYTES};

/// What `Config::load` says about a text that it must refuse.
fn refused(text: &str) -> String {
    match Config::load(text, "o.yml") {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(errors) => {
            let text = errors.to_string();
            assert!(!text.contains("hunter2"), "{text}");
            text
        }
    }
}

#[test]
fn the_shortest_file_is_the_minimal_configuration_with_its_pools() {
    let config = Config::load("version: 1\npools: [{provider: host}]", "x").unwrap();
    assert_eq!(Config { pools: config.pools.clone(), ..Config::minimal() }, config);
}

#[test]
fn a_mark_and_carriage_returns_are_fine() {
    Config::load("\u{feff}version: 1\r\npools:\r\n  - provider: host\r\n", "x").unwrap();
}

#[test]
fn anchors_are_fine_and_their_errors_are_placed() {
    let text = "version: 1\npools:\n  - {id: a, provider: host, limits: &l {concurrent: 2}}\n  \
                - {id: b, provider: host, limits: *l}\n";
    assert_eq!(Config::load(text, "x").unwrap().pools[1].limits.concurrent, Some(2));
    let errors = Config::load(&text.replace(": 2}", ": 0}"), "x").unwrap_err().errors;
    assert_eq!(errors.len(), 2);
    assert!(errors.iter().all(|e| (e.line, e.column) == (3, 53)), "{errors:?}");
}

#[test]
fn hostile_files_end_in_one_clean_error() {
    let bomb = (1..8).fold("a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned(), |text, i| {
        let items = vec![format!("*a{}", i - 1); 9].join(",");
        format!("{text}a{i}: &a{i} [{items}]\n")
    });
    assert!(refused(&bomb).contains("unfold"), "{}", refused(&bomb));
    let flat = format!("a: &a [{}]\nb: [{}]\n", "x,".repeat(20_000), "*a,".repeat(20_000));
    assert!(refused(&flat).contains("unfold"));
    assert!(refused(&"[".repeat(5_000)).contains("o.yml:1:"));
    assert!(
        refused(&format!("{}{}", "[".repeat(500), "]".repeat(500))).contains("nested too deeply")
    );
    assert!(refused(&"[".repeat(30_000)).contains("brackets"));
    assert!(refused(&"- ".repeat(5_000)).contains("nested too deeply"));
    assert!(refused(&"a".repeat(MAX_CONFIG_BYTES + 1)).contains("at most"));
    assert!(refused("a: &a [*a]").contains("o.yml:1:"));
    assert!(refused("\u{0}").contains("o.yml:1:"));
    assert!(refused("version: 1\npools: \u{1b}[31m").chars().all(|c| c == '\n' || !c.is_control()));
}

#[test]
fn a_pattern_that_excludes_nothing_is_a_warning() {
    let text = "version: 1\npools: [{provider: host}]\nexclude: [codex, host]";
    let warnings = Config::load(text, "x").unwrap().warnings();
    assert_eq!(warnings, ["exclude: 'codex' matches no declared pool"]);
}

proptest::proptest! {
    #[test]
    fn no_text_panics_and_every_error_has_a_place(
        lines in proptest::collection::vec(
            "( {0,4})(- )?(version|pools|provider|dispatch|lease|x)?(: )?[\\[\\]{}a-z0-9&*!'\"|>#,]{0,6}",
            0..12,
        ),
    ) {
        let text = lines.join("\n");
        if let Err(errors) = Config::load(&text, "x") {
            assert!(!errors.errors.is_empty());
            for error in errors.errors {
                assert!(error.line >= 1 && error.column >= 1 && !error.remedy.is_empty());
            }
        }
    }
}

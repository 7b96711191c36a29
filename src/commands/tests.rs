//! The rules of reading, one table per topic.

use proptest::prelude::*;

use super::{
    Access, DEFAULT_PREFIX, MAX_CHARS, MAX_COMMANDS, Occasion, Parsed, Reply, Sender, SenderKind,
    Verb, decide, parse,
};

fn read(body: &str) -> Parsed {
    parse(body, None, DEFAULT_PREFIX)
}

/// `verb arg; verb; !line reason`
fn show(parsed: &Parsed) -> String {
    let commands = parsed
        .commands
        .iter()
        .map(|c| [&[c.verb.name().to_owned()], c.args.as_slice()].concat().join(" "));
    let invalid = parsed.invalid.iter().map(|i| format!("!{} {}", i.line, i.reason));
    commands.chain(invalid).collect::<Vec<_>>().join("; ")
}

fn check(cases: &[(&str, &str)]) {
    for (body, expected) in cases {
        assert_eq!(show(&read(body)), *expected, "{body:?}");
    }
}

#[test]
fn the_start_of_a_line() {
    check(&[
        ("please\n/overhaul pause\nthanks", "pause"),
        ("please /overhaul pause", ""),
        ("@bot /overhaul pause", ""),
        ("👍 /overhaul pause", ""),
        ("text\n    /overhaul pause", "pause"),
        ("    /overhaul pause", ""),
        ("\u{a0}/overhaul\u{a0}pause", "pause"),
        ("\u{200b}/overhaul pause", "pause"),
        ("\u{200f}/overhaul pause", "pause"),
        ("\u{202e}/overhaul pause", ""),
        ("／overhaul pause", ""),
        ("/ overhaul pause", ""),
        ("//overhaul pause", ""),
        ("&#47;overhaul pause", ""),
        ("/over\u{200b}haul pause", ""),
        ("/overhaul pause  \nmore", "pause"),
        ("/overhaul pause\\\nmore", "pause"),
        ("\u{2028}/overhaul pause", "pause"),
    ]);
}

#[test]
fn the_prefix_is_a_word_of_its_own() {
    check(&[
        ("/OVERHAUL\tPause", "pause"),
        ("/overhaul-bot pause", ""),
        ("/overhaul/pause", ""),
        ("/overhaul.yml is wrong", ""),
        ("/overhaulé pause", ""),
        ("/overhaul, pause", "!1 unknown prefix form"),
        ("/overhaul:", "!1 unknown prefix form"),
        ("/overhaul", "help"),
        ("/overhaul \n/overhaul status", "help; status"),
    ]);
    assert_eq!(show(&parse("/fix retry N-1\n/overhaul pause", None, "/fix")), "retry N-1");
}

#[test]
fn what_is_shown_is_not_said() {
    check(&[
        ("`/overhaul cancel`", ""),
        ("``x\n/overhaul cancel``", ""),
        ("```\n/overhaul cancel", ""),
        ("```\n/overhaul cancel\n~~~\n/overhaul pause\n", ""),
        ("> quote\n/overhaul cancel", ""),
        ("> [!NOTE]\n> /overhaul cancel", ""),
        ("- /overhaul cancel", ""),
        ("- [ ] /overhaul cancel", ""),
        ("- item\n/overhaul cancel", ""),
        ("- item\n\n/overhaul pause", "pause"),
        ("# /overhaul cancel", ""),
        ("| /overhaul cancel |\n|---|\n| x |", ""),
        ("a | b\n--- | ---\n/overhaul cancel | x", ""),
        ("[^1]: /overhaul cancel\n/overhaul cancel", ""),
        ("**/overhaul cancel**", ""),
        ("*see\n/overhaul cancel*", ""),
        ("~~/overhaul cancel~~", ""),
        ("/overhaul ~~cancel~~ pause", "pause"),
        ("/overhaul skip ~~N-1~~ N-2", "skip N-2"),
        ("/overhaul skip <del>N-1</del> N-2", "skip N-2"),
        ("/overhaul retry N-1 <!-- flaky -->", "retry N-1"),
        ("/overhaul retry N-1 <!-- a\nb -->\n/overhaul pause", "retry N-1; pause"),
        ("/overhaul pause <!-- /overhaul cancel -->", "pause"),
        ("~~no\n/overhaul cancel~~", ""),
        ("[see\n/overhaul cancel](https://example.invalid)", ""),
        ("![see\n/overhaul cancel](https://example.invalid)", ""),
        ("[x]: <\n/overhaul cancel\n>", "cancel"),
        ("<!-- /overhaul cancel -->", ""),
        ("<!-- x --> /overhaul cancel", ""),
        ("see <!--\n/overhaul cancel\n--> x", ""),
        ("<!--\n\n/overhaul cancel", ""),
        ("<div>\n/overhaul cancel\n</div>", ""),
        ("<pre>\n\n/overhaul cancel\n\n</pre>", ""),
        ("see <code>\n/overhaul cancel\n</code>", ""),
        ("<blockquote>\n\n/overhaul cancel\n\n</blockquote>\n\n/overhaul pause", "pause"),
        (
            "<details>\n\n<details>\n\n</details>\n\n/overhaul cancel\n\n</details>\n\n/overhaul pause",
            "pause",
        ),
        ("<!-- <details> -->\n\n/overhaul pause", "pause"),
        ("$$\n/overhaul cancel\n$$", ""),
    ]);
}

#[test]
fn mail_ends_where_the_answered_text_begins() {
    check(&[
        ("/overhaul pause\n\n-- \nA\n/overhaul cancel", "pause"),
        ("/overhaul pause\n\n—\n/overhaul cancel", "pause"),
        (
            "/overhaul pause\n\nOn Mon, Jan 13, 2025 at 10:00, A\n<a@b.c> wrote:\n\n> x\n\n/overhaul cancel",
            "pause",
        ),
        ("```\n-- \n```\n/overhaul pause", "pause"),
        ("a\n\n---\n\n/overhaul pause", "pause"),
        ("/overhaul pause\n\nFrom: A <a@b.c>\nSent: Monday\nTo: o/r\n\n/overhaul cancel", "pause"),
        ("/overhaul pause\n\nA <a@b.c>, 13 Oca 2025:\n\n/overhaul cancel", "pause"),
    ]);
}

#[test]
fn arguments() {
    check(&[
        ("/overhaul retry N-001.", "retry N-001"),
        ("/overhaul retry `N-001`", "retry N-001"),
        ("/overhaul retry \"N-001\"", "retry N-001"),
        ("/overhaul retry **N-001**", "retry N-001"),
        ("/overhaul retry [N-001](https://example.invalid)", "retry N-001"),
        ("/overhaul retry N\\_001", "retry N_001"),
        ("/overhaul retry N-001\u{200b}", "retry N-001"),
        ("/overhaul retry N-001\\", "retry N-001"),
        ("/overhaul retry N‑001", "retry N-001"),
        ("/overhaul retry", "!1 retry needs a node"),
        ("/overhaul retry ../x", "!1 bad node id"),
        ("/overhaul retry <N-001>", "!1 bad node id"),
        ("/overhaul skip N-1 N-2 N-3", "!1 skip takes one node"),
        ("/overhaul skip N-1 as discussed", "!1 too many arguments"),
        ("/overhaul approve", "approve"),
        ("/overhaul approve N-1", "approve N-1"),
        (
            "/overhaul unsettle openai-compatible#a/qwen/qwen3:8b",
            "unsettle openai-compatible#a/qwen/qwen3:8b",
        ),
        ("/overhaul unsettle a<b", "!1 bad pool id"),
        ("/overhaul resume /overhaul cancel", "!1 one command per line"),
        ("/overhaul pause until Monday, please", "pause"),
    ]);
}

#[test]
fn budgets() {
    check(&[
        ("/overhaul budget +5", "budget +5"),
        ("/overhaul budget 5", "budget 5"),
        ("/overhaul budget +2.50.", "budget +2.50"),
        ("/overhaul budget $5", "budget 5"),
        ("/overhaul budget +$5", "budget +5"),
        ("/overhaul budget 5 USD", "budget 5"),
        ("/overhaul budget 0", "!1 budget must be positive"),
        ("/overhaul budget −5", "!1 budget must be positive"),
        ("/overhaul budget five", "!1 budget takes a number"),
        ("/overhaul budget inf", "!1 budget takes a number"),
        ("/overhaul budget NaN", "!1 budget takes a number"),
        ("/overhaul budget 1e9", "!1 budget takes a number"),
        ("/overhaul budget 2,5", "!1 budget takes a number"),
        ("/overhaul budget 99999999999", "!1 budget is too large"),
        ("/overhaul budget", "!1 budget needs an amount"),
        ("/overhaul budget 1 2", "!1 too many arguments"),
    ]);
    assert_eq!(read("/overhaul budget +2.5").commands[0].amount(), Some(2.5));
}

#[test]
fn unknown_verbs_are_answered_without_their_markup() {
    let suggestion = |body| read(body).invalid[0].suggestion.clone();
    assert_eq!(suggestion("/overhaul aprove").as_deref(), Some("/overhaul approve [NODE]"));
    assert_eq!(suggestion("/overhaul rety N-1").as_deref(), Some("/overhaul retry NODE"));
    assert_eq!(suggestion("/overhaul lgtm").as_deref(), Some("/overhaul approve [NODE]"));
    assert_eq!(suggestion("/overhaul explode"), None);
    check(&[
        ("/overhaul @team/all", "!1 unknown command teamall"),
        ("/overhaul <script>", "!1 unknown command script"),
        ("/overhaul !!!", "help"),
        ("/overhaul ***", "!1 unknown command"),
    ]);
}

#[test]
fn edits_act_on_what_they_add() {
    let edit = |new: &str, old: &str| show(&parse(new, Some(old), DEFAULT_PREFIX));
    assert_eq!(edit("/overhaul resume", "/overhaul resume"), "");
    assert_eq!(edit("/overhaul resume\ntypo", "/overhaul  Resume\ntpyo"), "");
    assert_eq!(edit("/overhaul resume\n/overhaul resume", "/overhaul resume"), "resume");
    assert_eq!(edit("/overhaul resume", "`/overhaul resume`"), "resume");
    assert_eq!(edit("/overhaul skip N-2", "/overhaul skip N-1"), "skip N-2");
    assert_eq!(edit("/overhaul explode\nx", "/overhaul explode"), "");
}

#[test]
fn our_own_comments_ask_for_nothing() {
    check(&[
        ("<!-- overhaul:dashboard -->\n\n/overhaul resume", ""),
        ("/overhaul resume\n\n<!-- overhaul:pause -->", ""),
        ("> <!-- overhaul:pause -->\n\n/overhaul resume", "resume"),
    ]);
}

#[test]
fn bounds() {
    assert_eq!(read(&"é".repeat(MAX_CHARS)), Parsed::default());
    assert_eq!(read(&"x".repeat(MAX_CHARS + 1)).invalid.len(), 1);
    let many = read(&"/overhaul status\n".repeat(MAX_COMMANDS + 5));
    assert_eq!((many.commands.len(), many.invalid.len()), (MAX_COMMANDS, 1));
    for hostile in ["[", "<", "`", "*_", "> ", "- ", "![", "<details>", "a\n", "$", "```\n"] {
        let _ = read(&hostile.repeat(MAX_CHARS / hostile.len()));
    }
}

#[test]
fn every_verb_is_read_by_its_name() {
    for verb in Verb::ALL {
        let usage = verb.usage().0.replace("NODE", "N-1").replace("POOL", "p").replace("+N", "+1");
        let parsed = read(&format!("/overhaul {}", usage.replace(['[', ']'], "")));
        assert_eq!(parsed.commands.first().map(|c| c.verb), Some(verb), "{usage}");
    }
}

#[test]
fn readers_may_ask_and_only_writers_may_command() {
    let of = |body: &str, access, closed| {
        let sender = Sender { kind: SenderKind::User, login: "a", access };
        decide(&read(body), sender, Occasion { deleted: false, closed }, Access::Write).reply
    };
    assert_eq!(of("/overhaul status", Access::Read, false), Reply::Ack);
    assert_eq!(of("/overhaul status", Access::None, false), Reply::Denied);
    assert_eq!(of("/overhaul status\n/overhaul pause", Access::Read, false), Reply::Denied);
    assert_eq!(of("/overhaul explode", Access::Read, false), Reply::None);
    assert_eq!(of("/overhaul pause", Access::Triage, false), Reply::Denied);
    assert_eq!(of("/overhaul pause", Access::Write, true), Reply::Error);
    assert_eq!(of("/overhaul status", Access::Write, true), Reply::Ack);
    assert_eq!(of("/overhaul: pause", Access::Admin, false), Reply::Hint);
    assert_eq!(of("hello", Access::None, false), Reply::None);
    assert_eq!(Access::from_api("owner"), Access::None);
}

/// Texts that are near commands.
fn near_commands() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        Just("/overhaul "),
        Just("resume"),
        Just("retry N-1"),
        Just("\n"),
        Just("\n\n"),
        Just("`"),
        Just("```\n"),
        Just("~~~\n"),
        Just("> "),
        Just("- "),
        Just("    "),
        Just("\t"),
        Just("<!--"),
        Just("-->"),
        Just("<details>"),
        Just("</details>"),
        Just("|"),
        Just("[x]("),
        Just(")"),
        Just("*"),
        Just("\\"),
        Just("é"),
        Just("\u{a0}"),
        Just("-- \n"),
        Just("On 1 wrote:\n"),
        Just("$"),
        Just("&#47;"),
        Just("\u{feff}"),
    ];
    proptest::collection::vec(part, 0..40).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn no_text_panics(text in ".{0,200}", near in near_commands()) {
        let _ = read(&text);
        let _ = parse(&near, Some(&text), DEFAULT_PREFIX);
    }

    #[test]
    fn line_ends_do_not_matter(text in near_commands()) {
        let unix = read(&text);
        prop_assert_eq!(&read(&text.replace('\n', "\r\n")), &unix);
        prop_assert_eq!(&read(&text.replace('\n', "\r")), &unix);
    }

    #[test]
    fn what_stands_in_a_fence_never_acts(text in near_commands()) {
        let inside = text.replace("```", "").replace('`', "");
        prop_assert_eq!(read(&format!("````\n{inside}\n````\n")), Parsed::default());
    }

    #[test]
    fn repeating_a_comment_as_an_edit_adds_nothing(text in near_commands()) {
        prop_assert!(parse(&text, Some(&text), DEFAULT_PREFIX).is_empty());
    }

    #[test]
    fn reasons_hold_no_markup(word in "\\PC{1,40}") {
        for invalid in read(&format!("/overhaul {word}")).invalid {
            prop_assert!(!invalid.reason.contains(['@', '<', '`', '[', '*', '#', '\n']));
        }
    }
}

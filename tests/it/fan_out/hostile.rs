//! Results as hostile input: each bad one is refused with the reason, and harms nothing else.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use overhaul::ledger::EventKind;
use ring::signature::Ed25519KeyPair;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{
    WORKER, call, entries, events, file_of, grant, land, nothing_is_held, refs, run_of, work, world,
};
use crate::support::{World, git};

/// A result taken apart.
struct Parts {
    seal: String,
    manifest: String,
    content: Vec<u8>,
}

impl Parts {
    fn read(path: &PathBuf) -> Self {
        let bytes = fs::read(path).unwrap();
        let end = bytes.iter().position(|b| *b == b'\n').unwrap();
        let line = std::str::from_utf8(&bytes[..end]).unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let length: usize = words[2].parse().unwrap();
        let (manifest, content) = bytes[end + 1..].split_at(length);
        Self {
            seal: words[4].to_owned(),
            manifest: String::from_utf8(manifest.to_vec()).unwrap(),
            content: content.to_vec(),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let (manifest, content) = (&self.manifest, &self.content);
        let mut bytes =
            format!("overhaul-result 1 {} {} {}\n", manifest.len(), content.len(), self.seal)
                .into_bytes();
        bytes.extend(manifest.as_bytes());
        bytes.extend(content);
        bytes
    }

    /// The same with another manifest and content, sealed with the node's own key: what a job makes
    /// that was taken over.
    fn sealed(manifest: &Value, content: Vec<u8>, entry: &Value) -> Vec<u8> {
        let manifest = manifest.to_string();
        let mut message = b"overhaul-result 1".to_vec();
        message.extend(Sha256::digest(&manifest));
        message.extend(Sha256::digest(&content));
        let seed = BASE64.decode(entry["key"].as_str().unwrap()).unwrap();
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).unwrap();
        let seal = BASE64.encode(pair.sign(&message));
        Self { seal, manifest, content }.bytes()
    }

    fn with(&self, from: &str, to: &str) -> Vec<u8> {
        assert!(self.manifest.contains(from), "{from} in {}", self.manifest);
        Self {
            seal: self.seal.clone(),
            manifest: self.manifest.replace(from, to),
            content: self.content.clone(),
        }
        .bytes()
    }
}

/// Two nodes handed out and done; gives the grant, its entries and their files.
fn two_done(world: &World) -> (Value, Vec<Value>, Vec<PathBuf>) {
    let handed_out = grant(world, &[]);
    let all = entries(&handed_out);
    let files = all.iter().map(|entry| work(world, "clone-a", entry)).collect();
    (handed_out, all, files)
}

/// The first node's result is replaced by these bytes; the second one's is honest. Gives the reason.
fn refused(bad: impl FnOnce(&Value, &Value, &Parts, &Parts) -> Vec<u8>) -> String {
    let world = world(2, WORKER, "true", "");
    let (handed_out, all, files) = two_done(&world);
    let parts = [Parts::read(&files[0]), Parts::read(&files[1])];
    fs::write(&files[0], bad(&all[0], &all[1], &parts[0], &parts[1])).unwrap();
    let landed = land(&world, &handed_out);
    assert_eq!(landed.code, Some(3), "{}", landed.stderr);
    assert_eq!(landed.fate("N-002"), "landed", "the honest one: {}", landed.report);
    assert_eq!(world.pulls().len(), 1);
    assert_eq!(world.node("N-001")["state"], "ready", "given back");
    nothing_is_held(&world);
    let why = landed.refused();
    assert_eq!(why.len(), 1, "{why:?}");
    why.into_values().next().unwrap()
}

#[test]
fn what_is_no_result_is_refused() {
    assert!(refused(|_, _, _, _| Vec::new()).contains("empty"));
    assert!(refused(|_, _, own, _| own.bytes()[..300].to_vec()).contains("cut off"));
    let mut zip = b"PK\x03\x04".to_vec();
    zip.extend(b"../../../../etc/cron.d/x".repeat(20));
    assert!(refused(|_, _, _, _| zip).contains("no result of ours"));
    assert!(refused(|_, _, own, _| [own.bytes(), b"x".to_vec()].concat()).contains("longer"));
    let huge = b"overhaul-result 1 99999999999 1 x\n{}".to_vec();
    assert!(refused(|_, _, _, _| huge).contains("too many"));
}

#[test]
fn a_forged_result_is_refused() {
    let seal = "its seal is not of the job";
    // Content, manifest, or seal changed on the way.
    let why = refused(|_, _, own, _| {
        let mut content = own.content.clone();
        content[0] ^= 1;
        Parts { content, manifest: own.manifest.clone(), seal: own.seal.clone() }.bytes()
    });
    assert!(why.contains(seal), "{why}");
    let why = refused(|_, _, own, _| own.with("\"said\":\"done\"", "\"said\":\"satisfied\""));
    assert!(why.contains(seal), "{why}");
    // In another node's name: what the ledger tells everybody is not enough.
    let why = refused(|own, other, _, parts| {
        let text = parts
            .manifest
            .replace(other["owner"].as_str().unwrap(), own["owner"].as_str().unwrap());
        let manifest = text.replace("N-002", "N-001");
        Parts { manifest, content: parts.content.clone(), seal: parts.seal.clone() }.bytes()
    });
    assert!(why.contains(seal), "{why}");
    let why = refused(|own, other, parts, _| {
        parts.with(own["owner"].as_str().unwrap(), other["owner"].as_str().unwrap())
    });
    assert!(why.contains("not the owner"), "{why}");
    let why = refused(|_, _, parts, _| parts.with("\"attempt\":1", "\"attempt\":2"));
    assert!(why.contains("not the owner"), "{why}");
    let why = refused(|_, _, parts, _| parts.with("\"node\":\"N-001\"", "\"node\":\"N-999\""));
    assert!(why.contains("no node N-999"), "{why}");
    let why = refused(|own, _, parts, _| parts.with(own["grant"].as_str().unwrap(), "g-0"));
    assert!(why.contains("grant g-0"), "{why}");
    let why = refused(|own, _, parts, _| parts.with(own["run"].as_str().unwrap(), "r-0"));
    assert!(why.contains("run r-0"), "{why}");
}

#[test]
fn what_a_job_itself_hands_in_wrongly_is_refused() {
    // A job that was taken over has the key of its own node. Its hand-out with another base is not
    // that of the ledger, before and after.
    let world = world(2, WORKER, "true", "");
    let (handed_out, all, _) = two_done(&world);
    for (field, value) in [
        ("owner", "00000000000000000000000000000000"),
        ("base", "0000000000000000000000000000000000000000"),
        ("attempt", "7"),
        ("pool", "other"),
        ("key", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"),
        ("grant", "g-1"),
    ] {
        let mut entry = all[0].clone();
        entry[field] = if field == "attempt" { 7.into() } else { value.into() };
        let output = call(&world, "work", "clone-a", &entry, &[]);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{field}: {stderr}");
        assert!(!stderr.contains(all[0]["key"].as_str().unwrap()), "the key is never shown");
    }
    let mut entry = all[0].clone();
    entry["key"] = all[1]["key"].clone();
    assert_eq!(call(&world, "work", "clone-a", &entry, &[]).status.code(), Some(3));
    let mut entry = all[0].clone();
    entry["key"] = 5.into();
    assert_eq!(call(&world, "work", "clone-a", &entry, &[]).status.code(), Some(2));
    assert_eq!(land(&world, &handed_out).code, Some(0));
}

/// What a job that was taken over makes of its own honest result, and why that is refused.
type Lie = (&'static str, fn(&mut Value, &mut Vec<u8>, &str));

const LIES: &[Lie] = &[
    ("it starts from", |it, _, other| it["base"] = other.into()),
    ("is no path inside", |it, _, _| it["pieces"][0]["path"] = "../../../escaped".into()),
    ("is no path inside", |it, _, _| it["pieces"][0]["path"] = "/tmp/escaped".into()),
    ("is no path inside", |it, _, _| it["pieces"][0]["path"] = ".git/hooks/post-checkout".into()),
    ("is no path inside", |it, _, _| it["pieces"][0]["path"] = "sub/.git".into()),
    ("not of this form", |it, _, _| it["pieces"][0]["kind"] = "submodule".into()),
    ("is not the blob", |_, content, _| content[0] ^= 1),
    ("bytes are listed", |_, content, _| content.truncate(1)),
    ("it makes the tree", |it, _, other| it["tree"] = other.into()),
    ("names no tree", |it, _, _| it["tree"] = Value::Null),
    ("is listed twice", |it, content, _| {
        let piece = it["pieces"][0].clone();
        it["pieces"].as_array_mut().unwrap().push(piece);
        content.extend(content.clone());
    }),
    ("20001 files changed; 20000 are allowed", |it, _, _| it["pieces"] = removals(20_001)),
    // 100 000 paths are more than the manifest may have bytes.
    ("too many", |it, _, _| it["pieces"] = removals(100_000)),
];

fn removals(count: usize) -> Value {
    let path = |n| format!("a-folder-with-a-name/and-another-one/{n}");
    (0..count).map(|n| json!({"path": path(n), "kind": "removed", "bytes": 0})).collect()
}

#[test]
fn a_good_seal_on_a_bad_result_changes_nothing() {
    let world = world(LIES.len() + 1, WORKER, "true", "pull-requests:\n  max-open: 50\n");
    let handed_out = grant(&world, &[]);
    let all = entries(&handed_out);
    // A commit that is there, and that nobody was granted.
    let remote = world.path("remote.git");
    let other = git(&remote, &["commit-tree", "-m", "other", "-p", "main", "main^{tree}"]);
    git(&remote, &["update-ref", "refs/heads/other", other.trim()]);
    let mut honest = None;
    for (n, entry) in all.iter().enumerate() {
        let file = work(&world, "clone-a", entry);
        let parts = Parts::read(&file);
        let (mut manifest, mut content) =
            (serde_json::from_str(&parts.manifest).unwrap(), parts.content.clone());
        match LIES.get(n) {
            Some((_, lie)) => lie(&mut manifest, &mut content, other.trim()),
            None => honest = entry["node"].as_str(),
        }
        fs::write(&file, Parts::sealed(&manifest, content, entry)).unwrap();
    }
    let before = refs(&world);
    let landed = land(&world, &handed_out);
    assert_eq!(landed.code, Some(3), "{}", landed.stderr);
    assert_eq!(
        landed.fate(honest.unwrap()),
        "landed",
        "the seal is as the job's: {}",
        landed.report
    );
    let refused = landed.refused();
    for (entry, (reason, _)) in all.iter().zip(LIES) {
        let why = &refused[&format!("{}.bundle", entry["bundle"].as_str().unwrap())];
        assert!(why.contains(reason), "{reason}: {why}");
        let node = entry["node"].as_str().unwrap();
        assert_eq!(world.node(node)["state"], "ready", "{reason}: given back");
    }
    assert_eq!((world.pulls().len(), refused.len()), (1, LIES.len()));
    let new: Vec<String> =
        refs(&world).lines().filter(|line| !before.contains(line)).map(str::to_owned).collect();
    let ours = |line: &String| line.contains(honest.unwrap()) || line.ends_with("/overhaul/state");
    assert!(new.iter().all(ours), "{new:?}");
    nothing_is_held(&world);
}

#[test]
fn strange_files_harm_nobody() {
    let world = world(2, WORKER, "true", "");
    let (handed_out, all, files) = two_done(&world);
    let bundles = world.path("bundles");
    // The first node's artifact: 100 000 files, and a result of a sparse gigabyte.
    fs::remove_file(&files[0]).unwrap();
    let folder = bundles.join(all[0]["bundle"].as_str().unwrap());
    fs::create_dir_all(&folder).unwrap();
    for n in 0..100_000 {
        fs::File::create(folder.join(format!("{n}.bundle"))).unwrap();
    }
    let sparse = fs::File::create(file_of(&folder, &all[0])).unwrap();
    sparse.set_len(1 << 30).unwrap();
    // The second node's is in its artifact's folder, as downloads are.
    let own = bundles.join(all[1]["bundle"].as_str().unwrap());
    fs::create_dir_all(&own).unwrap();
    fs::rename(&files[1], file_of(&own, &all[1])).unwrap();
    symlink(file_of(&own, &all[1]), bundles.join("link.bundle")).unwrap();
    symlink("/", bundles.join("root")).unwrap();
    fs::create_dir_all(bundles.join("folder.bundle")).unwrap();
    let fifo = bundles.join("pipe.bundle");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();

    let landed = land(&world, &handed_out);
    assert_eq!(landed.code, Some(3), "{}", landed.stderr);
    assert_eq!(landed.fate("N-002"), "landed", "{}", landed.stderr);
    assert_eq!(world.node("N-001")["state"], "ready");
    let refused = landed.refused();
    let why = |end: &str| {
        let found = refused.iter().find(|(file, _)| file.ends_with(end));
        found.unwrap_or_else(|| panic!("{end}: {refused:?}")).1.clone()
    };
    let sparse = format!("{}.bundle", all[0]["bundle"].as_str().unwrap());
    assert!(why(&sparse).contains("1073741824 bytes"), "{refused:?}");
    assert!(why("link.bundle").contains("opened"), "{refused:?}");
    assert!(why("pipe.bundle").contains("no plain file"), "{refused:?}");
    assert!(refused.contains_key(""), "that there was more is said: {refused:?}");
    assert!(refused.len() < 50);
}

#[test]
fn twice_the_same_is_once_and_the_order_of_arrival_changes_nothing() {
    let mut trees = Vec::new();
    for reverse in [false, true] {
        let world = world(3, WORKER, "true", "");
        let handed_out = grant(&world, &[]);
        let mut all = entries(&handed_out);
        if reverse {
            all.reverse();
        }
        for entry in &all {
            let file = work(&world, "clone-a", entry);
            fs::copy(&file, file.with_file_name(format!("copy-{}.bundle", entry["node"]))).unwrap();
        }
        let landed = land(&world, &handed_out);
        assert_eq!(landed.code, Some(0), "{}", landed.stderr);
        assert_eq!(world.pulls().len(), 3);
        let accepted: Vec<(String, String)> = events(&world)
            .into_iter()
            .filter_map(|event| match event.kind {
                EventKind::Accepted { node, receipt, .. } => Some((node.to_string(), receipt.tree)),
                _ => None,
            })
            .collect();
        trees.push(accepted);
    }
    assert_eq!(trees[0], trees[1]);
}

#[test]
fn two_different_results_of_one_job_count_for_nothing() {
    let world = world(2, "date +%N >> \"$2\"\n", "true", "");
    let (handed_out, all, files) = two_done(&world);
    fs::rename(&files[0], files[0].with_file_name("first.bundle")).unwrap();
    work(&world, "clone-a", &all[0]);
    let landed = land(&world, &handed_out);
    assert_eq!((landed.fate("N-001"), landed.fate("N-002")), ("failed", "landed"));
    let run = run_of(&world);
    let record = &run.nodes[&"N-001".parse().unwrap()];
    assert!(record.failures[0].detail.contains("Two different results"));
}

#[test]
fn the_result_of_a_stale_owner_is_refused() {
    let mut world = world(2, WORKER, "true", "");
    world.set("OVERHAUL_NOW", "2026-11-30T10:00:00Z");
    let (first, all, files) = two_done(&world);
    // Nobody can say whether its jobs live: the claims stand until they expire.
    world.set("OVERHAUL_NOW", "2026-11-30T15:00:00Z");
    assert!(grant(&world, &[]).is_null());
    world.set("OVERHAUL_NOW", "2026-11-30T16:30:00Z");
    let second = grant(&world, &[]);
    assert_eq!(entries(&second).len(), 2);
    assert_eq!(entries(&second)[0]["attempt"], 2);
    // The first owner's job is told at once ...
    let output = call(&world, "work", "clone-a", &all[0], &[]);
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("not held any more"));
    // ... and its late results are not taken, by its own land job or by another's.
    for handed_out in [&first, &second] {
        let landed = land(&world, handed_out);
        assert_eq!(landed.code, Some(3), "{}", landed.stderr);
        assert_eq!(landed.refused().len(), files.len(), "{:?}", landed.refused());
    }
    assert!(world.pulls().is_empty());
}

#[test]
fn nothing_that_a_job_says_of_its_work_is_believed() {
    // The job's own configuration checks nothing and protects nothing: the one that lands does.
    let worker = "echo \"$1\" >> \"$2\"\nif [ \"$1\" = N-001 ]; then echo BROKEN >> \"$2\"; fi\n";
    let world = world(2, worker, "! grep -q BROKEN \"$@\" f*.txt", "");
    let handed_out = grant(&world, &[]);
    let all = entries(&handed_out);
    // A hostile job does not run the checks at all: a `sh` that says yes to everything but the
    // worker itself.
    let fake = world.write(
        "fake/sh",
        "#!/bin/sh\ncase \"$*\" in *grep*) exit 0 ;; esac\nexec /bin/sh \"$@\"\n",
    );
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&fake, mode).unwrap();
    let path = format!("{}:{}", world.path("fake").display(), std::env::var("PATH").unwrap());
    let mut lying = world;
    lying.set("PATH", &path);
    for entry in &all {
        work(&lying, "clone-a", entry);
    }
    lying.unset("PATH");
    let parts = Parts::read(&file_of(&lying.path("bundles"), &all[0]));
    assert!(parts.manifest.contains("\"said\":\"done\""), "{}", parts.manifest);
    let landed = land(&lying, &handed_out);
    assert_eq!(
        (landed.fate("N-001"), landed.fate("N-002")),
        ("failed", "landed"),
        "{}",
        landed.report
    );
    assert_eq!(lying.pulls().len(), 1);
}

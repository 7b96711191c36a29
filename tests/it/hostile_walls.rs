//! The walls around workers and checks. Each attack succeeds where the sandbox is off, so that none
//! of these tests passes because the attack was no good.

use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use overhaul::backends::scripted::{Answer, Scripted};
use overhaul::process::layers;

use crate::hostile::{branch_of, kill_at_work, lives, node, until, why, world};
use crate::support::{World, git};

/// A kernel without the layer can't show that it holds: that is said, never passed over.
fn needs(layer: &str) {
    let found = layers().into_iter().find(|l| l.name == layer).expect("a known layer");
    assert!(
        found.held,
        "NOT VERIFIED HERE: this kernel lacks the layer `{layer}`: {}",
        found.detail
    );
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Replaces the world's sandbox section.
fn sandbox(world: &World, lines: &str) {
    let path = world.path("overhaul.yml");
    let text = std::fs::read_to_string(&path).unwrap();
    let (head, rest) = text.split_once("sandbox:\n").unwrap();
    let rest = rest.split_once('\n').unwrap().1;
    std::fs::write(path, format!("{head}sandbox:\n{lines}{rest}")).unwrap();
}

/// Each tries to write outside its own tree, one way each.
const WRITES: &[(&str, &str)] = &[
    ("absolute", "echo pwned > {world}/victims/absolute"),
    ("symlink", "ln -s {world}/victims out; echo pwned > out/symlink; rm out"),
    ("hardlink", "ln {world}/victims/hardlink mine && { echo pwned > mine; rm mine; }"),
    ("rename", "echo pwned > x; mv x {world}/victims/rename || rm x"),
    ("remove", "rm {world}/victims/remove"),
    ("folder", "mkdir {world}/victims/new; echo pwned > {world}/victims/folder"),
    (
        "hooks",
        "mkdir -p {world}/work/store.git/hooks; echo pwned > {world}/work/store.git/hooks/post-checkout",
    ),
    ("config", "git --git-dir={world}/work/store.git config core.pager pwned"),
    (
        "gitfile",
        "mkdir sub; echo 'gitdir: {world}/checkout/.git' > sub/.git; \
         (cd sub; git config core.pager pwned); rm -r sub",
    ),
    ("remote", "git --git-dir={world}/remote.git config core.pager pwned"),
    ("ledger", "git --git-dir={world}/remote.git update-ref refs/heads/overhaul/x main"),
    ("siblings", "for t in {world}/work/slots/*/*/tree; do echo pwned > $t/sibling-was-here; done"),
    ("temp", "echo pwned > {world}/runner-temp/file"),
    ("procfs", "echo 0 > /proc/$PPID/oom_score_adj && echo pwned > {world}/victims/procfs"),
];

/// What those have done, by what they are called.
fn damage(world: &World) -> Vec<&'static str> {
    let holds = |path: &str| {
        std::fs::read_to_string(world.path(path)).is_ok_and(|text| text.contains("pwned"))
    };
    let refs = git(&world.path("remote.git"), &["for-each-ref", "refs/heads/overhaul/x"]);
    let done = |name: &str| match name {
        "remove" => !world.path("victims/remove").exists(),
        "hooks" => holds("work/store.git/hooks/post-checkout"),
        "config" => holds("work/store.git/config"),
        "gitfile" => holds("checkout/.git/config"),
        "remote" => holds("remote.git/config"),
        "ledger" => !refs.is_empty(),
        "temp" => holds("runner-temp/file"),
        // Slots are gone by now; a sibling's branch would show it.
        "siblings" => world.branches().keys().any(|branch| {
            git(&world.path("remote.git"), &["ls-tree", "-r", branch]).contains("sibling-was-here")
        }),
        name => holds(&format!("victims/{name}")),
    };
    WRITES.iter().map(|(name, _)| *name).filter(|name| done(name)).collect()
}

fn world_of_writes() -> World {
    let mut cases = String::new();
    for (name, attack) in WRITES {
        cases.push_str(&format!("{name}) ({attack}) 2>/dev/null; echo X > {name};;\n"));
    }
    let mut files: Vec<&str> = WRITES.iter().map(|(name, _)| *name).collect();
    files.sort_unstable();
    let mut world = world(&files, &cases, "true", "pull-requests:\n  max-open: 50\n");
    for folder in ["victims", "runner-temp"] {
        std::fs::create_dir(world.path(folder)).unwrap();
    }
    world.write("victims/hardlink", "");
    world.write("victims/remove", "");
    world.set("RUNNER_TEMP", &world.path("runner-temp").display().to_string());
    world
}

#[test]
fn nothing_is_written_outside_the_tree_by_any_way() {
    needs("files");
    let walled = world_of_writes();
    sandbox(&walled, "  mode: required\n");
    let cycle = walled.next_step();
    assert_eq!(cycle.code, Some(0), "{}", cycle.stderr);
    assert_eq!(damage(&walled), Vec::<&str>::new());
    // The attack is all that failed: the work inside the tree is done.
    for (name, _) in WRITES {
        assert_eq!(node(&walled, name)["state"], "in_review", "{name}: {}", why(&walled, name));
    }
}

#[test]
fn without_the_walls_those_attacks_succeed() {
    let open = world_of_writes();
    sandbox(&open, "  mode: off\n");
    open.next_step();
    let done = damage(&open);
    // Siblings may have ended before the attack; lowering a score needs root.
    for (name, _) in WRITES.iter().filter(|(name, _)| !matches!(*name, "siblings" | "procfs")) {
        assert!(done.contains(name), "{name} is no attack; done: {done:?}");
    }
}

/// Each tries to read what is not its own; its file tells how many bytes it got.
const READS: &[(&str, &str)] = &[
    ("environment", "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep ^PARENT_SECRET"),
    ("temp", "cat {world}/runner-temp/secret"),
    ("credential", "cat {world}/checkout/.git/config"),
    ("checkout", "cat {world}/checkout/untracked-secret"),
    ("home", "cat {world}/home/.netrc"),
    ("ledger", "git --git-dir={world}/remote.git config --get secret.value"),
    ("listing", "ls {world}/runner-temp"),
    ("siblings", "cat {world}/work/slots/*/*/home/prompt.md"),
];

const SECRET: &str = "hunter2-of-the-runner";

fn world_of_reads() -> World {
    let mut cases = String::new();
    for (name, attack) in READS {
        cases.push_str(&format!("{name}) ({attack}) 2>/dev/null | wc -c > {name};;\n"));
    }
    let mut files: Vec<&str> = READS.iter().map(|(name, _)| *name).collect();
    files.sort_unstable();
    let mut world = world(&files, &cases, "true", "");
    world.write("runner-temp/secret", SECRET);
    world.write("checkout/untracked-secret", SECRET);
    world.write("home/.netrc", SECRET);
    for repo in ["checkout", "remote.git"] {
        git(&world.path(repo), &["config", "secret.value", SECRET]);
    }
    world.set("RUNNER_TEMP", &world.path("runner-temp").display().to_string());
    world.set("PARENT_SECRET", SECRET);
    world
}

/// Who of them got anything.
fn leaks(world: &World) -> Vec<&'static str> {
    let got = |name: &&str| {
        assert_eq!(node(world, name)["state"], "in_review", "{name}: {}", why(world, name));
        world.show(&branch_of(world, name), name).trim() != "0"
    };
    READS.iter().map(|(name, _)| *name).filter(got).collect()
}

#[test]
fn nothing_is_read_that_is_not_the_workers() {
    needs("files");
    let walled = world_of_reads();
    sandbox(&walled, "  mode: required\n");
    let cycle = walled.next_step();
    assert_eq!(cycle.code, Some(0), "{}", cycle.stderr);
    assert_eq!(leaks(&walled), Vec::<&str>::new());
}

#[test]
fn without_the_walls_those_secrets_leak() {
    let open = world_of_reads();
    sandbox(&open, "  mode: off\n");
    open.next_step();
    let leaked = leaks(&open);
    for (name, _) in READS {
        // Only root can read what this program hides from its own user.
        let hidden = *name == "environment" && !is_root();
        assert!(hidden || leaked.contains(name), "{name} is no attack; leaked: {leaked:?}");
    }
}

#[test]
fn a_link_in_the_place_of_our_file_leads_nowhere() {
    // The first turn leaves a link where the prompt of the repair turn goes.
    let cases = "a) if grep -q 'not the JSON' \"$OVERHAUL_PROMPT_FILE\"; then echo X > a; exit 0; fi; \
         rm \"$OVERHAUL_PROMPT_FILE\"; ln -s {world}/victim \"$OVERHAUL_PROMPT_FILE\"; \
         echo '{\"resolved\":7}' > \"$OVERHAUL_RESULT_FILE\";;\n";
    let world = world(&["a"], cases, "true", "");
    world.write("victim", "mine\n");
    let cycle = world.next_step();
    assert_eq!(cycle.code, Some(0), "{}", cycle.stderr);
    assert_eq!(node(&world, "a")["state"], "in_review", "{}", why(&world, "a"));
    assert_eq!(std::fs::read_to_string(world.path("victim")).unwrap(), "mine\n");
}

/// Whether somebody connects before the cycle ends.
fn connected(listener: &TcpListener) -> bool {
    listener.set_nonblocking(true).unwrap();
    listener.accept().is_ok()
}

#[test]
fn checks_and_pools_without_a_network_reach_no_port() {
    needs("network");
    for (lines, worker_open, check_open) in [
        ("    network: none\n", false, false),
        ("    network: any\n", true, false),
        ("    network: any\n", true, true),
    ] {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [for_worker, for_check] = listeners.each_ref().map(|l| l.local_addr().unwrap().port());
        let knock =
            |port: u16| format!("timeout 2 git ls-remote git://127.0.0.1:{port}/x 2>/dev/null");
        let cases = format!("a) {}; echo X > a;;\n", knock(for_worker));
        let world = world(&["a"], &cases, &format!("{}; true", knock(for_check)), "");
        let path = world.path("overhaul.yml");
        let mut text = std::fs::read_to_string(&path).unwrap();
        text = text.replace("    cost-per-mtok: 0\n", &format!("    cost-per-mtok: 0\n{lines}"));
        if check_open {
            text = text.replace("verify:\n", "verify:\n  network: true\n");
        }
        std::fs::write(path, text).unwrap();
        let cycle = world.next_step();
        assert_eq!(node(&world, "a")["state"], "in_review", "{}", cycle.stderr);
        let [worker, check] = listeners.each_ref().map(connected);
        assert_eq!((worker, check), (worker_open, check_open), "{lines}");
    }
}

/// Knocks at a port of the machine, then asks its gateway; `a` is how that answered.
fn asks_its_gateway(port: u16) -> String {
    format!(
        r#"a) bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}' 2>/dev/null
    p=${{OVERHAUL_BASE_URL#http://127.0.0.1:}}
    bash -c 'exec 3<>"/dev/tcp/127.0.0.1/$1"
        printf "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" >&3
        printf "Authorization: Bearer %s\r\nContent-Length: 2\r\n\r\n{{}}" "$OVERHAUL_TOKEN" >&3
        head -n 1 <&3' bash "${{p%/v1}}" > a 2>/dev/null
    echo X >> a;;
"#
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_command_without_a_network_reaches_its_gateway_and_no_other_port() {
    needs("network");
    let endpoint = Scripted::start(|_, _| Answer::text("hi").into()).await.unwrap();
    for (network, open) in [("none", false), ("any", true)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let cases = asks_its_gateway(listener.local_addr().unwrap().port());
        let world = world(&["a"], &cases, "true", "");
        let path = world.path("overhaul.yml");
        let text = std::fs::read_to_string(&path).unwrap();
        let address = endpoint.base_url().unwrap();
        let pool = format!("    base-url: {address}\n    network: {network}\n");
        let keys = "    cost-per-mtok: 0\n";
        std::fs::write(path, text.replace(keys, &format!("{keys}{pool}"))).unwrap();
        let cycle = world.next_step();
        assert_eq!(node(&world, "a")["state"], "in_review", "{network}: {}", cycle.stderr);
        let answer = world.show(&branch_of(&world, "a"), "a");
        assert!(answer.starts_with("HTTP/1.1 200"), "{network}: {answer}");
        assert_eq!(connected(&listener), open, "{network}");
    }
    assert_eq!(endpoint.requests().len(), 2);
}

/// Each tries to leave by another door than TCP; it has got somewhere where it ends well. `{udp}` and
/// `{tcp}` are ports that listen, `{name}` an abstract socket and `{path}` one with a path.
const DOORS: &[(&str, &str)] = &[
    ("abstract", "socket(S,1,1,0) && connect(S, pack_sockaddr_un(qq(\\0{name})))"),
    (
        "fastopen",
        "socket(S,2,1,0) && send(S, q(x), 0x20000000, pack_sockaddr_in({tcp}, INADDR_LOOPBACK))",
    ),
    ("hypervisor", "socket(S,40,1,0)"),
    ("icmp", "socket(S,2,2,1)"),
    ("keys", "syscall({keyctl}, 0, -3, 1) != -1"),
    ("mptcp", "socket(S,2,1,262) && connect(S, pack_sockaddr_in({tcp}, INADDR_LOOPBACK))"),
    ("netlink", "socket(S,16,3,15)"),
    ("packet", "socket(S,17,3,0)"),
    ("path", "socket(S,1,1,0) && connect(S, pack_sockaddr_un(q({path})))"),
    ("raw", "socket(S,2,3,1)"),
    ("udp", "socket(S,2,2,0) && send(S, q(x), 0, pack_sockaddr_in({udp}, INADDR_LOOPBACK))"),
    ("uring", "do { my $p = qq(\\0) x 120; syscall(425, 1, $p) != -1 }"),
];

/// What programs need all the same.
const NEEDS: &[(&str, &str)] = &[
    ("addresses", "socket(S,16,3,0)"),
    ("listen", "socket(S,2,1,0) && bind(S, pack_sockaddr_in(0, INADDR_LOOPBACK)) && listen(S, 1)"),
    ("pair", "socketpair(A,B,1,1,0) && syswrite(A, q(x))"),
];

/// What listens for the attacks.
struct Doors {
    udp: UdpSocket,
    tcp: TcpListener,
    folder: tempfile::TempDir,
    _abstract: UnixListener,
    _path: UnixListener,
}

impl Doors {
    fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().display().to_string();
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        Self {
            udp: UdpSocket::bind("127.0.0.1:0").unwrap(),
            tcp: TcpListener::bind("127.0.0.1:0").unwrap(),
            _abstract: UnixListener::bind_addr(&address).unwrap(),
            _path: UnixListener::bind(folder.path().join("docker.sock")).unwrap(),
            folder,
        }
    }

    /// The worker's arms, and their files.
    fn world(&self, pool: &str) -> World {
        let folder = self.folder.path().display().to_string();
        let keyctl = if cfg!(target_arch = "x86_64") { "250" } else { "219" };
        let mut cases = String::new();
        let mut files = Vec::new();
        for (name, attack) in DOORS.iter().chain(NEEDS) {
            let attack = attack
                .replace("{udp}", &self.udp.local_addr().unwrap().port().to_string())
                .replace("{tcp}", &self.tcp.local_addr().unwrap().port().to_string())
                .replace("{name}", &folder)
                .replace("{path}", &format!("{folder}/docker.sock"))
                .replace("{keyctl}", keyctl);
            let call = format!("perl -MSocket -e 'exit !({attack})'");
            cases.push_str(&format!("{name}) {call} 2> /dev/null; echo got $? > {name};;\n"));
            files.push(*name);
        }
        files.sort_unstable();
        let world = world(&files, &cases, "true", "pull-requests:\n  max-open: 50\n");
        let path = world.path("overhaul.yml");
        let text = std::fs::read_to_string(&path).unwrap();
        let pool = format!("    cost-per-mtok: 0\n{pool}");
        std::fs::write(path, text.replace("    cost-per-mtok: 0\n", &pool)).unwrap();
        world
    }
}

/// Who of them got somewhere.
fn through(world: &World) -> Vec<&'static str> {
    let got = |name: &&str| {
        assert_eq!(node(world, name)["state"], "in_review", "{name}: {}", why(world, name));
        world.show(&branch_of(world, name), name).trim() == "got 0"
    };
    DOORS.iter().chain(NEEDS).map(|(name, _)| *name).filter(got).collect()
}

fn names(list: &[(&'static str, &str)]) -> Vec<&'static str> {
    list.iter().map(|(name, _)| *name).collect()
}

#[test]
fn without_a_network_no_other_door_is_open() {
    needs("sockets");
    let doors = Doors::open();
    let walled = doors.world("    network: none\n");
    sandbox(&walled, "  mode: required\n");
    let cycle = walled.next_step();
    assert_eq!(cycle.code, Some(0), "{}", cycle.stderr);
    assert_eq!(through(&walled), names(NEEDS));
    assert!(!connected(&doors.tcp));
    doors.udp.set_nonblocking(true).unwrap();
    assert!(doors.udp.recv(&mut [0; 8]).is_err());
}

#[test]
fn with_a_network_only_the_internet_is_open() {
    needs("sockets");
    let doors = Doors::open();
    let walled = doors.world("");
    sandbox(&walled, "  mode: required\n");
    walled.next_step();
    let through = through(&walled);
    for name in ["udp", "fastopen"].iter().chain(&names(NEEDS)) {
        assert!(through.contains(name), "{name}: {through:?}");
    }
    for name in ["abstract", "hypervisor", "keys", "netlink", "packet", "path", "uring"] {
        assert!(!through.contains(&name), "{name}: {through:?}");
    }
    doors.udp.set_nonblocking(true).unwrap();
    assert_eq!(doors.udp.recv(&mut [0; 8]).unwrap(), 1);
}

#[test]
fn without_the_walls_those_doors_are_open() {
    let doors = Doors::open();
    let open = doors.world("    network: none\n");
    sandbox(&open, "  mode: off\n");
    open.next_step();
    let through = through(&open);
    for name in names(DOORS).into_iter().chain(names(NEEDS)) {
        // What a kernel or a user lacks can't be shown to be held.
        let says = |path: &str, text: &str| {
            std::fs::read_to_string(path).is_ok_and(|it| it.trim_start().starts_with(text))
        };
        let lacks = match name {
            "icmp" => says("/proc/sys/net/ipv4/ping_group_range", "1"),
            "packet" | "raw" => !is_root(),
            "mptcp" => !says("/proc/sys/net/mptcp/enabled", "1"),
            "hypervisor" => !std::path::Path::new("/dev/vsock").exists(),
            "uring" => !says("/proc/sys/kernel/io_uring_disabled", "0"),
            _ => false,
        };
        if lacks && !through.contains(&name) {
            println!("NOT VERIFIED HERE: {name}: this kernel or user has none");
            continue;
        }
        assert!(through.contains(&name), "{name} is no attack; through: {through:?}");
    }
}

#[test]
fn sockets_of_the_machine_are_opened_by_who_wants_it() {
    let doors = Doors::open();
    let open = doors.world("    network: none\n");
    sandbox(&open, "  mode: required\n  unix-sockets: any\n");
    open.next_step();
    let expected: Vec<&str> = ["abstract", "path"].into_iter().chain(names(NEEDS)).collect();
    assert_eq!(through(&open), expected);
    let doctor = String::from_utf8(open.run(&["doctor"]).stdout).unwrap();
    let line = doctor.lines().find(|l| l.contains("unix-sockets")).unwrap_or_default();
    assert!(line.contains("Docker's) are within reach"), "{doctor}");
}

#[test]
fn memory_and_processes_are_limited_for_all_that_a_worker_starts() {
    let word = format!("86399.{}", std::process::id());
    let cases = format!(
        "memory) (head -c 600000000 /dev/zero; sleep {word}) | tail;;\n\
         many) for i in 1 2 3; do (head -c 120000000 /dev/zero; sleep {word}) | tail & done; wait;;\n\
         forks) while :; do sleep {word} & done;;\n"
    );
    let world = world(&["forks", "good", "many", "memory"], &cases, "true", "");
    sandbox(&world, "  memory-bytes: 200000000\n  processes: 300\n");
    let cycle = world.next_step();
    assert_eq!(cycle.code, Some(0), "{}", cycle.stderr);
    for (file, reason) in [
        ("memory", "more than its memory"),
        ("many", "more than its memory"),
        ("forks", "too many processes"),
    ] {
        assert_eq!(node(&world, file)["state"], "failed", "{file}");
        let why = why(&world, file);
        // Enough processes are too much memory, too.
        let either = file == "forks" && why.contains("more than its memory");
        assert!(why.contains(reason) || either, "{file}: {why}");
    }
    assert_eq!(node(&world, "good")["state"], "in_review", "{}", why(&world, "good"));
    assert!(!lives(&word), "no process is left behind");
}

/// Leaves a process behind that shows nothing of where it came from: no marker, no parent, no
/// group, no session, and no ear for SIGTERM.
fn daemon(word: &str) -> String {
    format!(
        "(env -i PATH=\"$PATH\" nohup setsid sh -c '(trap \"\" TERM HUP; cd /; while :; do sleep \
         {word}; done) & exit' > /dev/null 2>&1 &)"
    )
}

#[test]
fn a_daemon_does_not_outlive_its_worker() {
    let word = format!("86398.{}", std::process::id());
    let cases = format!("a) {}; echo X > a;;\n", daemon(&word));
    let world = world(&["a", "b"], &cases, &format!("{}; true", daemon(&word)), "");
    let cycle = world.next_step();
    assert_eq!(cycle.nodes("in_review"), 2, "{}", cycle.stderr);
    assert!(!lives(&word), "no daemon of a worker or check is left");
}

#[test]
fn a_killed_cycle_takes_its_workers_with_it() {
    let word = format!("86397.{}", std::process::id());
    let cases = format!(
        "a) if [ ! -e {{world}}/go ]; then {}; (sleep {word} &); trap '' TERM; touch \
         {{world}}/at-work; sleep {word}; sleep {word}; fi; echo X > a;;\n",
        daemon(&word)
    );
    let world = world(&["a", "b"], &cases, "true", "");
    kill_at_work(&world, |_| until("it is there", || lives(&word)));
    until("all of it has ended", || !lives(&word));
    let next = world.next_step();
    assert_eq!(next.nodes("in_review"), 2, "{}", next.stderr);
    assert_eq!(node(&world, "a")["attempts"], 2);
}

#[test]
fn what_outlived_even_its_warden_is_ended_by_the_next_cycle() {
    let word = format!("86396.{}", std::process::id());
    // Survives the warden: not its child any more, and not in its group.
    let cases = format!(
        "a) if [ ! -e {{world}}/go ]; then (setsid sh -c 'trap \"\" TERM; sleep {word}; sleep \
         {word}' &); touch {{world}}/at-work; sleep 86395; fi; echo X > a;;\n"
    );
    let world = world(&["a"], &cases, "true", "");
    kill_at_work(&world, |cycle| {
        until("it is there", || lives(&word));
        // Neither may see the other die: a cycle that stands still looks after nothing.
        let all = wardens_of(cycle.id());
        assert!(!all.is_empty());
        let cycle = Pid::from_raw(i32::try_from(cycle.id()).unwrap());
        kill(cycle, Signal::SIGSTOP).unwrap();
        for warden in all {
            kill(warden, Signal::SIGKILL).unwrap();
        }
    });
    assert!(lives(&word), "it outlived both");
    let next = world.next_step();
    assert_eq!(next.nodes("in_review"), 1, "{}", next.stderr);
    assert!(next.stderr.contains("processes of a dead cycle were ended"), "{}", next.stderr);
    until("it ends", || !lives(&word));
}

/// Wardens that a process started.
fn wardens_of(parent: u32) -> Vec<Pid> {
    let mark = format!("--parent={parent}");
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let marked = line.split(|b| *b == 0).any(|arg| arg == mark.as_bytes());
        marked.then(|| Pid::from_raw(pid))
    })
    .collect()
}

#[test]
fn required_is_kept_and_doctor_names_every_layer() {
    let world = world(&["a"], "", "true", "");
    sandbox(&world, "  mode: required\n");
    let missing =
        layers().into_iter().any(|l| !l.held && matches!(l.name, "files" | "network" | "sockets"));
    let cycle = world.next_step();
    if missing {
        assert_eq!(cycle.code, Some(2), "{}", cycle.stderr);
        assert!(cycle.stderr.contains("the sandbox is required"), "{}", cycle.stderr);
    } else {
        assert_eq!(cycle.nodes("in_review"), 1, "{}", cycle.stderr);
    }
    let doctor: serde_json::Value =
        serde_json::from_slice(&world.run(&["doctor", "--json"]).stdout).unwrap();
    let checks = doctor["checks"].as_array().unwrap();
    for layer in layers() {
        let check = checks
            .iter()
            .find(|c| c["area"] == "sandbox" && c["subject"] == layer.name)
            .unwrap_or_else(|| panic!("{}: {doctor}", layer.name));
        assert_eq!(check["health"] == "ok", layer.held, "{check}");
    }
}

/// A world whose places are open for all users, so that worktrees can have users of their own.
fn open_world(files: &[&str], cases: &str) -> World {
    let mut world = world(files, cases, "true", "");
    world.set("PATH", "/usr/local/bin:/usr/bin:/bin");
    let mut chmod = std::process::Command::new("chmod");
    assert!(chmod.args(["-R", "a+rX"]).arg(world.dir.path()).status().unwrap().success());
    sandbox(&world, "  mode: best-effort\n");
    world
}

#[test]
fn each_worktree_of_root_has_a_user_of_its_own() {
    if !is_root() {
        println!("NOT VERIFIED HERE: only root can give worktrees users of their own");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mode = std::fs::Permissions::from_mode;
    std::fs::set_permissions(folder.path(), mode(0o755)).unwrap();
    let socket = folder.path().join("docker.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    std::fs::set_permissions(&socket, mode(0o660)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let cases = format!(
        "a) id -u > who; printf 'protocol=https\\nhost=x\\n' \
         | timeout 2 git credential-cache --socket {} get 2>/dev/null; cat who > a; rm who; sed -n 's/^Max processes *//p' \
         /proc/self/limits >> a; git log -1 --format=%s >> a;;\n\
         b) chmod 700 {{world}}/work/store.git; touch {{world}}/work/store.git/HEAD; echo X > b;;\n",
        socket.display()
    );
    let world = open_world(&["a", "b"], &cases);
    let cycle = world.next_step();
    assert_eq!(cycle.nodes("in_review"), 2, "{} {}", cycle.report, cycle.stderr);
    let seen = world.show(&branch_of(&world, "a"), "a");
    let lines: Vec<&str> = seen.lines().collect();
    let user: u32 = lines[0].parse().unwrap();
    assert!((60_578..60_706).contains(&user), "{seen}");
    assert!(lines[1].starts_with("4096 "), "the kernel counts its processes: {seen}");
    assert_eq!(lines[2], "start", "git works for it");
    assert!(listener.accept().is_err(), "a socket of root is out of reach");
    let store = std::fs::metadata(world.path("work/store.git")).unwrap();
    assert_eq!(store.permissions().mode() & 0o777, 0o755, "what is root's keeps its mode");
    let doctor = String::from_utf8(world.run(&["doctor"]).stdout).unwrap();
    assert!(doctor.contains("a user of its own"), "{doctor}");
}

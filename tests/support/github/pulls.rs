//! Endpoints of pull requests and branches.

use serde_json::{Value, json};

use super::render::Renderer;
use super::reply::{Asked, Reply};
use super::server::Bases;
use super::world::{Pull, Review, World};

const LONGEST_BODY: usize = 65_536;

pub fn list(world: &mut World, asked: &Asked, bases: &Bases) -> Reply {
    world.settle();
    let mut numbers: Vec<u64> = Vec::new();
    for (number, issue) in &mut world.issues {
        let Some(pull) = &issue.pull else { continue };
        if issue.lag.lists > 0 {
            issue.lag.lists -= 1;
            continue;
        }
        let owner = pull.fork.as_deref().unwrap_or(&world.owner);
        let label = format!("{}:{}", owner.split('/').next().unwrap_or_default(), pull.head);
        let wanted = match asked.query("state") {
            "all" => true,
            "closed" => !issue.open,
            _ => issue.open,
        };
        let head = asked.query("head");
        if wanted
            && (head.is_empty() || head.eq_ignore_ascii_case(&label))
            && (asked.query("base").is_empty() || asked.query("base") == pull.base)
        {
            numbers.push(*number);
        }
    }
    if asked.query("sort") == "updated" {
        numbers.sort_by_key(|number| (world.issues[number].updated, *number));
    }
    if asked.query("direction") != "asc" {
        numbers.reverse();
    }
    let renderer = bases.renderer(world);
    let items: Vec<Value> =
        numbers.iter().map(|n| renderer.pull(*n, &world.issues[n], false)).collect();
    Reply::page(asked, &bases.server, items)
}

pub fn get(world: &mut World, asked: &Asked, bases: &Bases) -> Reply {
    world.settle();
    let number = asked.number("pull_number");
    match world.issues.get(&number).filter(|issue| issue.pull.is_some()) {
        Some(issue) => Reply::new(200, bases.renderer(world).pull(number, issue, true)),
        None => Reply::error(404, "Not Found"),
    }
}

pub fn create(world: &mut World, asked: &Asked, bases: &Bases) -> Reply {
    world.settle();
    let (head, base) = (asked.text("head"), asked.text("base"));
    let head = head.split_once(':').map_or(head, |(_, branch)| branch);
    if asked.login == "github-actions[bot]" && !world.actions_may_open {
        let told = "GitHub Actions is not permitted to create or approve pull requests.";
        return Reply::error(403, told);
    }
    if world.git.head(head).is_none() {
        return Reply::invalid("PullRequest", "head", "invalid", "");
    }
    if world.git.head(base).is_none() {
        return Reply::invalid("PullRequest", "base", "invalid", "");
    }
    if asked.text("body").chars().count() > LONGEST_BODY {
        let told = "body is too long (maximum is 65536 characters)";
        return Reply::invalid("PullRequest", "body", "custom", told);
    }
    let open = world.issues.values().filter(|issue| issue.open);
    let mut pulls = open.filter_map(|issue| issue.pull.as_ref());
    if pulls.any(|pull| pull.head == head && pull.base == base && pull.fork.is_none()) {
        let told = format!("A pull request already exists for {}:{head}.", world.owner);
        return Reply::invalid("PullRequest", "", "custom", &told);
    }
    if world.git.ahead(base, head) == 0 {
        let told = format!("No commits between {base} and {head}");
        return Reply::invalid("PullRequest", "", "custom", &told);
    }
    if asked.body["draft"] == true && !world.drafts {
        return Reply::error(422, "Draft pull requests are not supported in this repository.");
    }
    let number = world.add_pull(&asked.login, head, base, asked.text("body"));
    asked.text("title").clone_into(&mut world.issue(number).title);
    world.pull(number).draft = asked.body["draft"] == true;
    Reply::new(201, bases.renderer(world).pull(number, &world.issues[&number], true))
}

pub fn update(world: &mut World, asked: &Asked, bases: &Bases) -> Reply {
    world.settle();
    let number = asked.number("pull_number");
    let now = world.now();
    let git = world.git.clone();
    let Some(issue) = world.issues.get_mut(&number).filter(|issue| issue.pull.is_some()) else {
        return Reply::error(404, "Not Found");
    };
    let pull = issue.pull.as_mut().expect("it was asked for");
    if let Some(base) = asked.body["base"].as_str() {
        if git.head(base).is_none() {
            return Reply::invalid("PullRequest", "base", "invalid", "");
        }
        if !issue.open {
            let told = "Cannot change the base branch of a closed pull request.";
            return Reply::invalid("PullRequest", "base", "custom", told);
        }
        base.clone_into(&mut pull.base);
        pull.base_commit = git.head(base).unwrap_or_default();
    }
    match asked.text("state") {
        "closed" => issue.open = false,
        "open" if !issue.open => {
            if let Some(reply) = cannot_reopen(pull, &git) {
                return reply;
            }
            issue.open = true;
        }
        _ => {}
    }
    for (name, field) in [("title", &mut issue.title), ("body", &mut issue.body)] {
        if let Some(text) = asked.body[name].as_str() {
            text.clone_into(field);
        }
    }
    issue.updated = now;
    Reply::new(200, bases.renderer(world).pull(number, &world.issues[&number], true))
}

fn cannot_reopen(pull: &Pull, git: &super::git::BareGit) -> Option<Reply> {
    let told = if pull.merged.is_some() {
        "state cannot be changed. The pull request is merged."
    } else if git.head(&pull.base).is_none() {
        "state cannot be changed. The base branch was deleted."
    } else if git.head(&pull.head).is_none() {
        "state cannot be changed. The head branch was deleted."
    } else {
        return None;
    };
    Some(Reply::invalid("PullRequest", "state", "invalid", told))
}

pub fn merge(world: &mut World, asked: &Asked, _: &Bases) -> Reply {
    match world.merge(asked.number("pull_number")) {
        Ok(sha) => Reply::new(200, json!({"sha": sha, "merged": true, "message": "merged"})),
        Err(_) => Reply::error(405, "Pull Request is not mergeable"),
    }
}

pub fn ask_reviewers(world: &mut World, asked: &Asked, bases: &Bases) -> Reply {
    let number = asked.number("pull_number");
    let list = asked.body["reviewers"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let logins: Vec<String> = list.map(str::to_owned).collect();
    let known = |login: &String| world.users.get(login).is_some_and(|user| user.role != "none");
    if !logins.iter().all(known) {
        let told = "Reviews may only be requested from collaborators.";
        return Reply::error(422, told);
    }
    world.pull(number).reviewers.extend(logins);
    Reply::new(201, bases.renderer(world).pull(number, &world.issues[&number], false))
}

/// A pull request as GraphQL tells its reviews: of each person the latest one with a verdict, of
/// people who may write.
pub fn opinions(world: &World, number: u64) -> Value {
    let Some(issue) = world.issues.get(&number).filter(|issue| issue.pull.is_some()) else {
        return Value::Null;
    };
    let mut latest: Vec<&Review> = Vec::new();
    for review in world.reviews.iter().filter(|r| r.on == number && r.state != "COMMENTED") {
        latest.retain(|earlier| earlier.author != review.author);
        latest.push(review);
    }
    let writes = |login: &str| {
        let role = world.users.get(login).map_or("none", |user| user.role);
        matches!(role, "write" | "maintain" | "admin")
    };
    let nodes: Vec<Value> = latest
        .into_iter()
        .filter(|review| writes(&review.author))
        .map(|review| {
            let remark = |(path, line, body): &(String, u64, String)| {
                json!({"path": path, "line": line, "body": body})
            };
            let remarks: Vec<Value> = review.remarks.iter().map(remark).collect();
            json!({
                "id": review.id, "state": review.state, "body": review.body,
                "author": {"__typename": "User", "login": review.author},
                "comments": {"nodes": remarks},
            })
        })
        .collect();
    json!({
        "number": number, "updatedAt": issue.updated,
        "latestOpinionatedReviews": {"nodes": nodes},
    })
}

pub fn branch(world: &mut World, asked: &Asked, bases: &Bases) -> Reply {
    let name = asked.parameters["ref"].trim_start_matches("heads/").to_owned();
    match world.git.head(&name) {
        Some(commit) => Reply::new(200, bases.renderer(world).branch_ref(&name, &commit)),
        None => Reply::error(404, "Not Found"),
    }
}

pub fn delete_branch(world: &mut World, asked: &Asked, _: &Bases) -> Reply {
    let name = asked.parameters["ref"].trim_start_matches("heads/").to_owned();
    if world.git.head(&name).is_none() {
        return Reply::error(422, "Reference does not exist");
    }
    world.git.run(&["update-ref", "-d", &format!("refs/heads/{name}")]);
    world.settle();
    Reply::empty(204)
}

pub fn matching_branches(world: &mut World, asked: &Asked, bases: &Bases) -> Reply {
    let prefix = format!("refs/{}", asked.parameters["ref"]);
    let listing = world.git.run(&["for-each-ref", "--format=%(refname) %(objectname)"]);
    let renderer: Renderer<'_> = bases.renderer(world);
    let refs = listing.lines().filter(|line| line.starts_with(&prefix));
    let refs = refs
        .filter_map(|line| line.split_once(' '))
        .map(|(name, commit)| renderer.branch_ref(name.trim_start_matches("refs/heads/"), commit));
    Reply::page(asked, &bases.server, refs.collect())
}

//! Endpoints of issues, comments, reactions and labels.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::reply::{Asked, Reply};
use super::server::Bases;
use super::world::World;

const LONGEST_BODY: usize = 65_536;

pub fn list(world: &mut World, asked: &Asked, bases: &Bases) -> Reply {
    let mut numbers: Vec<u64> = Vec::new();
    let labels: Vec<&str> = asked.query("labels").split(',').filter(|l| !l.is_empty()).collect();
    for (number, issue) in &mut world.issues {
        if issue.pull.is_none() && !world.has_issues {
            continue;
        }
        if issue.lag.lists > 0 {
            issue.lag.lists -= 1;
            continue;
        }
        let wanted = match asked.query("state") {
            "all" => true,
            "closed" => !issue.open,
            _ => issue.open,
        };
        let labelled = labels.iter().all(|label| issue.labels.iter().any(|own| own == label));
        if wanted && labelled {
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
    let items = numbers.iter().map(|n| renderer.issue(*n, &world.issues[n])).collect();
    Reply::page(asked, &bases.server, items)
}

/// Finds quoted words in bodies of issues.
pub fn search(world: &mut World, asked: &Asked, bases: &Bases) -> Reply {
    let words = asked.query("q").split('"').nth(1).unwrap_or_default().to_owned();
    let renderer = bases.renderer(world);
    let hits = world.issues.iter().filter(|(_, i)| i.pull.is_none() && i.body.contains(&words));
    let items: Vec<Value> = hits
        .map(|(number, issue)| {
            let mut item = renderer.issue(*number, issue);
            item["score"] = json!(1.0);
            item
        })
        .collect();
    let total = items.len();
    Reply::new(200, json!({"total_count": total, "incomplete_results": false, "items": items}))
}

pub fn get(world: &mut World, asked: &Asked, bases: &Bases) -> Reply {
    let number = asked.number("issue_number");
    match world.issues.get(&number) {
        Some(issue) => Reply::new(200, bases.renderer(world).issue(number, issue)),
        None => Reply::error(404, "Not Found"),
    }
}

pub fn create(world: &mut World, asked: &Asked, bases: &Bases) -> Reply {
    if !world.has_issues {
        return Reply::error(410, "Issues are disabled for this repo");
    }
    if too_long(asked) {
        return long("Issue");
    }
    if asked.text("title").trim().is_empty() {
        return Reply::invalid("Issue", "title", "missing_field", "");
    }
    let number = world.add_issue(&asked.login, asked.text("title"), asked.text("body"));
    Reply::new(201, bases.renderer(world).issue(number, &world.issues[&number]))
}

pub fn update(world: &mut World, asked: &Asked, bases: &Bases) -> Reply {
    let number = asked.number("issue_number");
    let now = world.now();
    if !world.has_issues {
        return Reply::error(410, "Issues are disabled for this repo");
    }
    if too_long(asked) {
        return long("Issue");
    }
    let Some(issue) = world.issues.get_mut(&number) else {
        return Reply::error(404, "Not Found");
    };
    for (name, field) in [("title", &mut issue.title), ("body", &mut issue.body)] {
        if let Some(text) = asked.body[name].as_str() {
            text.clone_into(field);
        }
    }
    if asked.body["body"].is_string() {
        issue.edited = Some((asked.login.clone(), now));
    }
    if let Some(state) = asked.body["state"].as_str() {
        issue.open = state == "open";
    }
    issue.updated = now;
    Reply::new(200, bases.renderer(world).issue(number, &world.issues[&number]))
}

pub fn add_labels(world: &mut World, asked: &Asked, bases: &Bases) -> Reply {
    let number = asked.number("issue_number");
    let Some(issue) = world.issues.get_mut(&number) else {
        return Reply::error(404, "Not Found");
    };
    if issue.lag.follow_ups > 0 {
        issue.lag.follow_ups -= 1;
        return Reply::error(422, "Validation Failed");
    }
    for label in asked.body["labels"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !issue.labels.iter().any(|own| own == label) {
            issue.labels.push(label.to_owned());
        }
    }
    let renderer = bases.renderer(world);
    let labels = &world.issues[&number].labels;
    Reply::new(200, labels.iter().map(|name| renderer.label(name)).collect())
}

pub fn conversation(world: &mut World, asked: &Asked, bases: &Bases) -> Reply {
    let on = asked.number("issue_number");
    if !world.issues.contains_key(&on) {
        return Reply::error(404, "Not Found");
    }
    comments(world, asked, bases, Some(on))
}

pub fn all_comments(world: &mut World, asked: &Asked, bases: &Bases) -> Reply {
    comments(world, asked, bases, None)
}

fn comments(world: &mut World, asked: &Asked, bases: &Bases, on: Option<u64>) -> Reply {
    let since: Option<Timestamp> = asked.query("since").parse().ok();
    let mut ids: Vec<u64> = Vec::new();
    for (id, comment) in &mut world.comments {
        if comment.lag.lists > 0 {
            comment.lag.lists -= 1;
            continue;
        }
        let late = since.is_none_or(|since| comment.updated >= since);
        if late && on.is_none_or(|on| comment.on == on) {
            ids.push(*id);
        }
    }
    if asked.query("sort") == "updated" {
        ids.sort_by_key(|id| (world.comments[id].updated, *id));
    }
    if asked.query("direction") == "desc" {
        ids.reverse();
    }
    let renderer = bases.renderer(world);
    let items = ids.iter().map(|id| renderer.comment(*id, &world.comments[id])).collect();
    Reply::page(asked, &bases.server, items)
}

pub fn comment(world: &mut World, asked: &Asked, bases: &Bases) -> Reply {
    let on = asked.number("issue_number");
    let Some(issue) = world.issues.get_mut(&on) else {
        return Reply::error(404, "Not Found");
    };
    if issue.pull.is_none() && !world.has_issues {
        return Reply::error(410, "Issues are disabled for this repo");
    }
    if issue.locked {
        return Reply::error(403, "Unable to create comment because issue is locked.");
    }
    if issue.lag.follow_ups > 0 {
        issue.lag.follow_ups -= 1;
        return Reply::error(404, "Not Found");
    }
    if too_long(asked) {
        return long("IssueComment");
    }
    let id = world.add_comment(&asked.login, on, asked.text("body"));
    Reply::new(201, bases.renderer(world).comment(id, &world.comments[&id]))
}

pub fn get_comment(world: &mut World, asked: &Asked, bases: &Bases) -> Reply {
    let id = asked.number("comment_id");
    match world.comments.get(&id) {
        Some(comment) => Reply::new(200, bases.renderer(world).comment(id, comment)),
        None => Reply::error(404, "Not Found"),
    }
}

pub fn update_comment(world: &mut World, asked: &Asked, bases: &Bases) -> Reply {
    let id = asked.number("comment_id");
    if !world.comments.contains_key(&id) {
        return Reply::error(404, "Not Found");
    }
    world.edit_comment(id, asked.text("body"));
    Reply::new(200, bases.renderer(world).comment(id, &world.comments[&id]))
}

pub fn react(world: &mut World, asked: &Asked, bases: &Bases) -> Reply {
    let id = asked.number("comment_id");
    if !world.comments.contains_key(&id) {
        return Reply::error(404, "Not Found");
    }
    let reaction = (id, asked.login.clone(), asked.text("content").to_owned());
    let there = world.reactions.iter().position(|own| *own == reaction);
    let index = there.unwrap_or_else(|| {
        world.reactions.push(reaction.clone());
        world.reactions.len() - 1
    });
    let status = if there.is_some() { 200 } else { 201 };
    Reply::new(status, bases.renderer(world).reaction(index + 1, &reaction.1, &reaction.2))
}

fn too_long(asked: &Asked) -> bool {
    asked.text("body").chars().count() > LONGEST_BODY
}

fn long(resource: &str) -> Reply {
    let told = "body is too long (maximum is 65536 characters)";
    Reply::invalid(resource, "body", "custom", told)
}

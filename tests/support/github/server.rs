//! HTTP: git, then the API with faults, tokens, limits, the contract, and the endpoints.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::SignedDuration;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::contract::{Contract, Operation};
use super::faults::{self, Answer, Fault};
use super::render::Renderer;
use super::reply::{Asked, Reply};
use super::world::{Logged, World};
use super::{artifacts, issues, pulls, repository};

/// Addresses that bodies name.
#[derive(Debug, Clone)]
pub struct Bases {
    /// `http://127.0.0.1:PORT`.
    pub server: String,
    /// The REST root.
    pub api: String,
}

impl Bases {
    pub fn renderer<'a>(&'a self, world: &'a World) -> Renderer<'a> {
        Renderer { world, server: &self.server, api: &self.api }
    }
}

/// What the server and the test share.
pub struct Shared {
    pub world: Mutex<World>,
    pub faults: Mutex<Vec<Fault>>,
    /// What broke the contract.
    pub violations: Mutex<Vec<String>>,
    pub bases: Bases,
    /// `/api/v3` for a GHES, else empty.
    pub prefix: &'static str,
    /// Folder of the bare repositories.
    pub repositories: PathBuf,
}

type Endpoint = fn(&mut World, &Asked, &Bases) -> Reply;

/// The endpoint of an operation and the permission that it needs.
fn endpoint(method: &str, template: &str) -> Option<(Endpoint, &'static str)> {
    let rest = template.strip_prefix("/repos/{owner}/{repo}").unwrap_or(template);
    Some(match (method, rest) {
        ("get", "") => (repository::get, "metadata: read"),
        ("get", "/pulls") => (pulls::list, "pull-requests: read"),
        ("post", "/pulls") => (pulls::create, "pull-requests: write"),
        ("get", "/pulls/{pull_number}") => (pulls::get, "pull-requests: read"),
        ("patch", "/pulls/{pull_number}") => (pulls::update, "pull-requests: write"),
        ("put", "/pulls/{pull_number}/merge") => (pulls::merge, "contents: write"),
        ("post", "/pulls/{pull_number}/requested_reviewers") => {
            (pulls::ask_reviewers, "pull-requests: write")
        }
        ("get", "/git/ref/{ref}") => (pulls::branch, "contents: read"),
        ("get", "/git/matching-refs/{ref}") => (pulls::matching_branches, "contents: read"),
        ("delete", "/git/refs/{ref}") => (pulls::delete_branch, "contents: write"),
        ("get", "/issues") => (issues::list, "issues: read"),
        ("post", "/issues") => (issues::create, "issues: write"),
        ("get", "/search/issues") => (issues::search, "issues: read"),
        ("get", "/issues/{issue_number}") => (issues::get, "issues: read"),
        ("patch", "/issues/{issue_number}") => (issues::update, "issues: write"),
        ("post", "/issues/{issue_number}/labels") => (issues::add_labels, "issues: write"),
        ("get", "/issues/{issue_number}/comments") => (issues::conversation, "issues: read"),
        ("post", "/issues/{issue_number}/comments") => (issues::comment, "issues: write"),
        ("get", "/issues/comments") => (issues::all_comments, "issues: read"),
        ("get", "/issues/comments/{comment_id}") => (issues::get_comment, "issues: read"),
        ("patch", "/issues/comments/{comment_id}") => (issues::update_comment, "issues: write"),
        ("post", "/issues/comments/{comment_id}/reactions") => (issues::react, "issues: write"),
        ("get", "/collaborators/{username}/permission") => {
            (repository::permission, "metadata: read")
        }
        ("get", "/actions/runs/{run_id}") => (repository::run, "actions: read"),
        ("post", "/actions/workflows/{workflow_id}/dispatches") => {
            (repository::dispatch, "actions: write")
        }
        ("get", "/actions/artifacts") => (artifacts::list, "actions: read"),
        ("get", "/actions/artifacts/{artifact_id}/{archive_format}") => {
            (artifacts::download, "actions: read")
        }
        ("get", "/code-scanning/alerts") => (repository::alerts, "security-events: read"),
        ("get", "/rate_limit") => (repository::rate_limit, ""),
        ("get", "/installation") => (repository::installation, "app"),
        ("post", "/app/installations/{installation_id}/access_tokens") => (repository::mint, "app"),
        _ => return None,
    })
}

pub fn router(shared: Arc<Shared>) -> Router {
    Router::new().fallback(handle).with_state(shared)
}

async fn handle(State(shared): State<Arc<Shared>>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, 64 * 1024 * 1024).await else {
        return respond(Reply::error(413, "too large"));
    };
    let (path, query) = (parts.uri.path(), parts.uri.query().unwrap_or_default());
    if path.contains(".git/") {
        let push = path.ends_with("/git-receive-pack") || query.contains("git-receive-pack");
        if let Err(reply) = shared.git_access(&parts.headers, push, path.ends_with("/info/refs")) {
            return reply;
        }
        let root = &shared.repositories;
        let served =
            super::git::serve(root, &parts.method, path, query, &parts.headers, body).await;
        if push {
            shared.world().settle();
        }
        return served;
    }
    if path.starts_with("/blob/") {
        return artifacts::blob(&mut shared.world(), parts.method.as_str(), path, query, &body);
    }
    match shared.answer(parts.method.as_str(), path, query, &parts.headers, &body) {
        Some(reply) => respond(reply),
        None => {
            let cut = futures_util::stream::iter([
                Ok(Bytes::from_static(b"{\"half")),
                Err(std::io::Error::other("cut")),
            ]);
            Response::builder().status(200).body(Body::from_stream(cut)).expect("a response")
        }
    }
}

impl Shared {
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn violate(&self, what: impl IntoIterator<Item = String>, place: &str) {
        let mut violations = self.violations.lock().expect("no poison");
        violations.extend(what.into_iter().map(|text| format!("{place}: {text}")));
    }

    /// git sends tokens as a password.
    #[expect(clippy::result_large_err, reason = "an answer")]
    fn git_access(
        &self,
        headers: &HeaderMap,
        push: bool,
        first: bool,
    ) -> Result<(), Response<Body>> {
        let given = headers.get("authorization").and_then(|v| v.to_str().ok()).unwrap_or_default();
        let token = match given.split_once(' ') {
            Some((kind, code)) if kind.eq_ignore_ascii_case("basic") => STANDARD
                .decode(code)
                .ok()
                .and_then(|bytes| String::from_utf8(bytes).ok())
                .and_then(|pair| pair.split_once(':').map(|(_, password)| password.to_owned())),
            Some((_, token)) => Some(token.to_owned()),
            None => None,
        };
        let mut world = self.world();
        // A fetch or push is several requests; its first one counts.
        let token = match token {
            Some(text) if first => world.use_token(&text),
            Some(text) => world.tokens.get(&text).cloned(),
            None => None,
        };
        let level = if push { "write" } else { "read" };
        let refuse = |status: u16, text: &'static str| {
            Response::builder()
                .status(status)
                .header("www-authenticate", "Basic realm=\"GitHub\"")
                .body(Body::from(text))
                .expect("a response")
        };
        match token {
            None => Err(refuse(401, "remote: Invalid username or token.\n")),
            Some(token) if !token.may("contents", level) => {
                Err(refuse(403, "remote: Write access to repository not granted.\n"))
            }
            Some(_) => Ok(()),
        }
    }

    /// The answer to an API request; none when the connection is to be cut.
    fn answer(
        &self,
        method: &str,
        full_path: &str,
        query: &str,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Option<Reply> {
        let place = format!("{method} {full_path}");
        let json: Option<Value> = serde_json::from_slice(body).ok();
        if let Some(call) = full_path.rsplit_once("results.api.v1.ArtifactService/") {
            let fault =
                faults::take(&mut self.faults.lock().expect("no poison"), method, full_path);
            if let Some(Answer::Status(status, ..)) = fault.map(|fault| fault.answer) {
                return Some(Reply::error(status, "fault"));
            }
            let body = json.unwrap_or_default();
            return Some(artifacts::twirp(&mut self.world(), &self.bases, call.1, headers, &body));
        }
        let graphql = if self.prefix.is_empty() { "/graphql" } else { "/api/graphql" };
        if full_path == graphql {
            let body = json.unwrap_or_default();
            let query = body["query"].as_str().unwrap_or_default();
            return Some(if query.contains("enablePullRequest") {
                self.auto_merge(method, headers, body)
            } else if query.contains("latestOpinionatedReviews") {
                let mut faults = self.faults.lock().expect("no poison");
                let fault = faults::take(&mut faults, method, full_path);
                drop(faults);
                if let Some(Answer::Status(status, ..)) = fault.map(|fault| fault.answer) {
                    return Some(Reply::error(status, "fault"));
                }
                self.reviews(headers, body)
            } else {
                self.graphql(headers, body)
            });
        }
        let Some(path) = full_path.strip_prefix(self.prefix) else {
            self.violate(["outside of the API's root".to_owned()], &place);
            return Some(Reply::error(404, "Not Found"));
        };
        let fault = faults::take(&mut self.faults.lock().expect("no poison"), method, path);
        let mut reply = match &fault {
            Some(fault) if !fault.after_effect => Reply::empty(500),
            _ => self.serve(method, path, full_path, query, headers, json.as_ref()),
        };
        let mut cut = false;
        match fault.map(|fault| fault.answer) {
            Some(Answer::Status(status, body, headers)) => {
                let body = serde_json::from_str(&body).unwrap_or(Value::String(body));
                reply = Reply { status, body, headers };
            }
            Some(Answer::Cut) => cut = true,
            None => {}
        }
        let target = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        let mut world = self.world();
        let logged = Logged {
            at: world.clock.read(),
            method: method.to_owned(),
            target,
            status: if cut { 0 } else { reply.status },
            body: json,
        };
        world.log.push(logged);
        (!cut).then_some(reply)
    }

    /// The one query that is asked: who edited an issue's text last. GraphQL has no description to
    /// check against; what is asked for must be what is answered.
    fn graphql(&self, headers: &HeaderMap, body: Value) -> Reply {
        let mut world = self.world();
        let given = headers.get("authorization").and_then(|v| v.to_str().ok()).unwrap_or_default();
        let token = world.tokens.get(given.strip_prefix("Bearer ").unwrap_or_default());
        let may = token.is_some_and(|token| token.may("issues", "read"));
        let query = body["query"].as_str().unwrap_or_default();
        let whole = ["issue(number: $number)", "lastEditedAt", "editor { __typename login }"];
        let number = body["variables"]["number"].as_u64().unwrap_or_default();
        let reply = if !may {
            Reply::error(401, "Bad credentials")
        } else if whole.iter().any(|part| !query.contains(part)) {
            Reply::new(200, serde_json::json!({"errors": [{"message": "not served by the rig"}]}))
        } else {
            let issue = world.issues.get(&number).map(|issue| {
                let editor = issue.edited.as_ref().map(|(login, _)| {
                    let bot = world.users.get(login).is_some_and(|user| user.bot);
                    serde_json::json!({
                        "__typename": if bot { "Bot" } else { "User" },
                        "login": login.trim_end_matches("[bot]"),
                    })
                });
                let at = issue.edited.as_ref().map(|(_, at)| at);
                serde_json::json!({"lastEditedAt": at, "editor": editor})
            });
            Reply::new(200, serde_json::json!({"data": {"repository": {"issue": issue}}}))
        };
        let at = world.clock.read();
        world.log.push(Logged {
            at,
            method: "GET".to_owned(),
            target: "graphql".to_owned(),
            status: reply.status,
            body: Some(body),
        });
        reply
    }

    /// The reviews of some pull requests, each under a name of its own.
    fn reviews(&self, headers: &HeaderMap, asked: Value) -> Reply {
        let mut world = self.world();
        let given = headers.get("authorization").and_then(|v| v.to_str().ok()).unwrap_or_default();
        let token = world.tokens.get(given.strip_prefix("Bearer ").unwrap_or_default());
        let may = token.is_some_and(|token| token.may("pull-requests", "read"));
        let query = asked["query"].as_str().unwrap_or_default();
        let whole = [
            "fragment asked on PullRequest { number updatedAt ",
            "latestOpinionatedReviews(first: 20, writersOnly: true) { nodes { id state body ",
            "author { __typename login }",
            "comments(first: 30) { nodes { path line body } }",
        ];
        if let Some(missing) = whole.iter().find(|part| !query.contains(**part)) {
            self.violate([format!("{missing} is not asked for")], "graphql");
        }
        let reply = if may {
            let name = |word: &str| word.strip_prefix('p')?.strip_suffix(':')?.parse::<u64>().ok();
            let names = query.split_whitespace().filter_map(name);
            let pulls: serde_json::Map<String, Value> =
                names.map(|n| (format!("p{n}"), pulls::opinions(&world, n))).collect();
            Reply::new(200, serde_json::json!({"data": {"repository": pulls}}))
        } else {
            Reply::error(401, "Bad credentials")
        };
        let logged = Logged {
            at: world.clock.read(),
            method: "GET".to_owned(),
            target: "graphql reviews".to_owned(),
            status: reply.status,
            body: Some(asked),
        };
        world.log.push(logged);
        reply
    }

    /// The mutation that turns on auto-merge. It answers 200 whatever it finds, as GraphQL does.
    fn auto_merge(&self, method: &str, headers: &HeaderMap, asked: Value) -> Reply {
        let known = "mutation($id: ID!, $head: GitObjectID!) { enablePullRequestAutoMerge(input: \
                     {pullRequestId: $id, expectedHeadOid: $head}) { clientMutationId } }";
        if method != "POST" || asked["query"] != known {
            self.violate([format!("{method} {asked}")], "graphql");
        }
        let mut world = self.world();
        world.settle();
        let given = headers.get("authorization").and_then(|v| v.to_str().ok()).unwrap_or_default();
        let bearer = given.strip_prefix("Bearer ").unwrap_or_default();
        let token = world.tokens.get(bearer).cloned();
        let number = asked["variables"]["id"].as_str().and_then(|id| id.strip_prefix("PR_"));
        let number: u64 = number.and_then(|n| n.parse().ok()).unwrap_or(0);
        let head = asked["variables"]["head"].as_str().unwrap_or_default().to_owned();
        let (allowed, checks) = (world.allow_auto_merge, world.required_checks);
        let pull = world.issues.get_mut(&number).filter(|i| i.open).and_then(|i| i.pull.as_mut());
        let told = match (token, pull) {
            (None, _) => return Reply::error(401, "Bad credentials"),
            (Some(token), _) if !token.may("pull-requests", "write") => {
                Some("Resource not accessible by integration")
            }
            (_, None) => Some("Could not resolve to a node with the global id"),
            _ if !allowed => Some("Auto merge is not allowed for this repository"),
            _ if !checks => Some("Pull request is in clean status"),
            (_, Some(pull)) if pull.head_commit != head => Some("Head sha was modified"),
            (_, Some(pull)) => {
                pull.auto_merge = Some(head);
                None
            }
        };
        let reply = match told {
            Some(told) => serde_json::json!({"data": null, "errors": [{"message": told}]}),
            None => {
                serde_json::json!({"data": {"enablePullRequestAutoMerge": {"clientMutationId": null}}})
            }
        };
        let at = world.clock.read();
        let (method, target) = (method.to_owned(), "/graphql".to_owned());
        world.log.push(Logged { at, method, target, status: 200, body: Some(asked) });
        Reply::new(200, reply)
    }

    fn serve(
        &self,
        method: &str,
        path: &str,
        full_path: &str,
        query: &str,
        headers: &HeaderMap,
        body: Option<&Value>,
    ) -> Reply {
        let place = format!("{method} {path}");
        let contract = Contract::get();
        let Some(operation) = contract.operation(method, path) else {
            self.violate(["not in the description".to_owned()], &place);
            return Reply::error(404, "Not Found");
        };
        let pairs: Vec<(String, String)> =
            url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        self.violate(contract.check_request(&operation, &pairs, body), &place);
        let reply = self.permitted(&operation, headers, |world, login, endpoint| {
            let asked = Asked {
                method: method.to_owned(),
                template: operation.template.clone(),
                parameters: operation.parameters.clone(),
                query: pairs.iter().cloned().collect::<HashMap<_, _>>(),
                body: body.cloned().unwrap_or(Value::Null),
                login,
                full_path: full_path.to_owned(),
            };
            endpoint(world, &asked, &self.bases)
        });
        self.violate(contract.check_answer(&operation, reply.status, &reply.body), &place);
        conditional(method, headers, reply)
    }

    /// Runs an endpoint if token, permission and limits allow it.
    fn permitted(
        &self,
        operation: &Operation,
        headers: &HeaderMap,
        run: impl FnOnce(&mut World, String, Endpoint) -> Reply,
    ) -> Reply {
        let mut world = self.world();
        let Some((endpoint, needs)) = endpoint(&operation.method, &operation.template) else {
            drop(world);
            self.violate(["the rig does not serve it".to_owned()], &operation.template);
            return Reply::error(404, "Not Found");
        };
        let given = headers.get("authorization").and_then(|v| v.to_str().ok()).unwrap_or_default();
        let bearer = given.strip_prefix("Bearer ").unwrap_or_default();
        if needs == "app" {
            return match repository::proves_app(&world, bearer) {
                Ok(()) => run(&mut world, String::new(), endpoint),
                Err(told) => Reply::error(401, &told),
            };
        }
        let Some(token) = world.use_token(bearer) else {
            return Reply::error(401, "Bad credentials");
        };
        if let Some(reply) = limited(&mut world, &operation.method) {
            return reply;
        }
        let repository = |name| operation.parameters.get(name).map_or("", String::as_str);
        let slug = format!("{}/{}", repository("owner"), repository("repo"));
        if operation.template.starts_with("/repos/") && !slug.eq_ignore_ascii_case(&world.slug()) {
            return Reply::error(404, "Not Found");
        }
        if world.archived && operation.method != "get" {
            return Reply::error(403, "Repository was archived so is read-only.");
        }
        let (area, level) = needs.split_once(": ").unwrap_or(("metadata", "read"));
        // Conversations of pull requests accept either permission.
        let conversation = operation.template.contains("/issues/");
        let either = area == "issues" && conversation && token.may("pull-requests", level);
        let mut reply = if token.may(area, level) || either || area == "metadata" {
            run(&mut world, token.login, endpoint)
        } else {
            let accepted = format!("{}={level}", area.replace('-', "_"));
            Reply::error(403, "Resource not accessible by integration")
                .header("x-accepted-github-permissions", accepted)
        };
        let (limit, used) = (world.limits.primary, world.used.1);
        let reset = world.used.0.as_second() + 3600;
        for (name, value) in [
            ("x-ratelimit-limit", i64::from(limit)),
            ("x-ratelimit-remaining", i64::from(limit.saturating_sub(used))),
            ("x-ratelimit-reset", reset),
        ] {
            reply = reply.header(name, value.to_string());
        }
        reply
    }
}

/// Counts a request, and refuses it when it is one too many.
fn limited(world: &mut World, method: &str) -> Option<Reply> {
    let now = world.clock.read();
    let hour = SignedDuration::from_hours(1);
    if now.duration_since(world.used.0) >= hour {
        world.used = (now, 0);
    }
    let reset = world.used.0.as_second() + 3600;
    if world.used.1 >= world.limits.primary {
        return Some(
            Reply::error(403, "API rate limit exceeded for installation ID 7.")
                .header("x-ratelimit-remaining", "0")
                .header("x-ratelimit-reset", reset.to_string()),
        );
    }
    world.used.1 += 1;
    if method != "post" {
        return None;
    }
    let minute = SignedDuration::from_mins(1);
    world.creations.retain(|at| now.duration_since(*at) < minute);
    if world.creations.len() >= world.limits.creations {
        let told = "You have exceeded a secondary rate limit and have been temporarily blocked \
                    from content creation. Please retry your request again later.";
        return Some(Reply::error(403, told).header("retry-after", "60"));
    }
    world.creations.push(now);
    None
}

/// Adds an ETag to what was read, and says 304 to who has it already.
fn conditional(method: &str, headers: &HeaderMap, reply: Reply) -> Reply {
    if method != "GET" || reply.status != 200 {
        return reply;
    }
    let digest = Sha256::digest(reply.body.to_string());
    let etag = format!("W/\"{}\"", digest.iter().map(|b| format!("{b:02x}")).collect::<String>());
    let known = headers.get("if-none-match").and_then(|value| value.to_str().ok());
    if known == Some(&etag) {
        return Reply::empty(304).header("etag", etag);
    }
    reply.header("etag", etag)
}

fn respond(reply: Reply) -> Response<Body> {
    let mut response = Response::builder().status(reply.status);
    for (name, value) in reply.headers {
        response = response.header(name, value);
    }
    let body = match reply.body {
        Value::Null => String::new(),
        Value::String(text) => text,
        body => {
            response = response.header("content-type", "application/json; charset=utf-8");
            body.to_string()
        }
    };
    response.body(Body::from(body)).expect("a response")
}

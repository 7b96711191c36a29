//! Workflow artifacts: the results service that a job writes to, the files behind signed addresses,
//! and the API's way to read them.

use std::collections::BTreeMap;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::contract::Contract;
use super::reply::{Asked, Reply};
use super::server::Bases;
use super::world::World;

/// What every signed address carries; a client that re-encodes it breaks the signature.
const SIGNATURE: &str = "se=2026-12-01T00%3A00%3A00Z&sig=abc%2Bdef%3D&sp=w";

#[derive(Debug, Clone)]
pub struct Artifact {
    pub id: u64,
    pub name: String,
    /// Backend id of the workflow run; names are unique within it.
    pub run: String,
    pub bytes: Option<Vec<u8>>,
    pub done: bool,
    /// `application/zip` where the client packed files.
    kind: String,
    /// As its writer said.
    hash: String,
    blocks: BTreeMap<String, Vec<u8>>,
}

/// What the runner gives to a job of a workflow run.
pub fn runtime_token(run: &str) -> String {
    let claims = json!({"scp": format!("Actions.ExampleScope Actions.Results:{run}:job-1")});
    format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()))
}

/// A call of the results service.
pub fn twirp(
    world: &mut World,
    bases: &Bases,
    method: &str,
    headers: &HeaderMap,
    body: &Value,
) -> Reply {
    let refuse = |status, code: &str| Reply::new(status, json!({"code": code, "msg": code}));
    let run = body["workflow_run_backend_id"].as_str().unwrap_or_default().to_owned();
    let given = headers.get("authorization").and_then(|v| v.to_str().ok()).unwrap_or_default();
    if given != format!("Bearer {}", runtime_token(&run)) {
        return refuse(401, "unauthenticated");
    }
    let name = body["name"].as_str().unwrap_or_default().to_owned();
    let at = world.artifacts.iter().position(|a| a.run == run && a.name == name);
    match (method, at) {
        ("CreateArtifact", Some(at)) if world.artifacts[at].done => refuse(409, "already_exists"),
        ("CreateArtifact", at) => {
            if let Some(at) = at {
                world.artifacts.remove(at);
            }
            let id = world.new_id();
            let (bytes, blocks) = (None, BTreeMap::new());
            let kind = body["mime_type"].as_str().unwrap_or("application/zip").to_owned();
            let (done, hash) = (false, String::new());
            world.artifacts.push(Artifact { id, name, run, bytes, done, kind, hash, blocks });
            let url = format!("{}/blob/{id}?{SIGNATURE}", bases.server);
            // As one implementation and the other answer.
            let key = if id.is_multiple_of(2) { "signed_upload_url" } else { "signedUploadUrl" };
            Reply::new(200, json!({"ok": true, key: url}))
        }
        ("FinalizeArtifact", Some(at)) => {
            let new = world.new_id();
            let artifact = &mut world.artifacts[at];
            let size = artifact.bytes.as_ref().map(|bytes| bytes.len().to_string());
            if size.as_deref() != body["size"].as_str() || artifact.done {
                return refuse(400, "invalid_argument");
            }
            artifact.done = true;
            artifact.id = new;
            artifact.hash = body["hash"].as_str().unwrap_or_default().to_owned();
            Reply::new(200, json!({"ok": true, "artifact_id": new.to_string()}))
        }
        ("DeleteArtifact", Some(at)) => {
            let gone = world.artifacts.remove(at);
            Reply::new(200, json!({"ok": true, "artifact_id": gone.id.to_string()}))
        }
        ("ListArtifacts", _) => {
            let named = body["name_filter"].as_str();
            let numbered = body["id_filter"].as_str();
            let wanted = world.artifacts.iter().filter(|a| {
                a.done
                    && a.run == run
                    && named.is_none_or(|name| a.name == name)
                    && numbered.is_none_or(|id| a.id.to_string() == id)
            });
            let job = &body["workflow_job_run_backend_id"];
            let list: Vec<Value> = wanted
                .map(|a| {
                    json!({
                        "workflow_run_backend_id": run, "workflow_job_run_backend_id": job,
                        "database_id": a.id.to_string(), "name": a.name, "digest": a.hash,
                        "size": a.bytes.as_ref().map_or(0, Vec::len).to_string(),
                        "created_at": world.now(),
                    })
                })
                .collect();
            Reply::new(200, json!({"artifacts": list}))
        }
        ("GetSignedArtifactURL", Some(at)) if world.artifacts[at].done => {
            let url = format!("{}/blob/{}?sig=rest", bases.server, world.artifacts[at].id);
            Reply::new(200, json!({"name": name, "signed_url": url}))
        }
        ("FinalizeArtifact" | "DeleteArtifact" | "GetSignedArtifactURL", _) => {
            refuse(404, "not_found")
        }
        _ => refuse(404, "bad_route"),
    }
}

/// A request to a file's address.
pub fn blob(
    world: &mut World,
    method: &str,
    path: &str,
    query: &str,
    body: &Bytes,
) -> Response<Body> {
    let answer = |status: u16, bytes: Vec<u8>| {
        Response::builder().status(status).body(Body::from(bytes)).expect("a response")
    };
    let id: u64 = path.rsplit('/').next().and_then(|id| id.parse().ok()).unwrap_or(0);
    let Some(artifact) = world.artifacts.iter_mut().find(|a| a.id == id) else {
        return answer(404, Vec::new());
    };
    if method == "GET" {
        let ending = if artifact.kind == "application/zip" { ".zip" } else { "" };
        return Response::builder()
            .header("content-type", &artifact.kind)
            .header(
                "content-disposition",
                format!("attachment; filename=\"{}{ending}\"", artifact.name),
            )
            .body(Body::from(artifact.bytes.clone().unwrap_or_default()))
            .expect("a response");
    }
    let Some(rest) = query.strip_prefix(SIGNATURE) else { return answer(403, Vec::new()) };
    let pairs: BTreeMap<String, String> =
        url::form_urlencoded::parse(rest.trim_start_matches('&').as_bytes()).into_owned().collect();
    match pairs.get("comp").map(String::as_str) {
        Some("block") => {
            artifact.blocks.insert(pairs["blockid"].clone(), body.to_vec());
        }
        Some("blocklist") => {
            let list = String::from_utf8_lossy(body).into_owned();
            let ids = list.split("<Latest>").skip(1).filter_map(|part| part.split('<').next());
            let blocks: Option<Vec<_>> = ids.map(|id| artifact.blocks.get(id).cloned()).collect();
            let Some(blocks) = blocks else { return answer(400, Vec::new()) };
            artifact.bytes = Some(blocks.concat());
        }
        _ => return answer(400, Vec::new()),
    }
    answer(201, Vec::new())
}

pub fn list(world: &mut World, asked: &Asked, bases: &Bases) -> Reply {
    let name = asked.query("name");
    let wanted =
        world.artifacts.iter().rev().filter(|a| a.done && (name.is_empty() || a.name == name));
    let items: Vec<Value> = wanted
        .map(|artifact| {
            let own = json!({"id": artifact.id, "name": artifact.name, "expired": false});
            Contract::get().shape("artifact", own)
        })
        .collect();
    let total = items.len();
    let mut reply = Reply::page(asked, &bases.server, items);
    reply.body = json!({"total_count": total, "artifacts": reply.body});
    reply
}

pub fn download(world: &mut World, asked: &Asked, bases: &Bases) -> Reply {
    let id = asked.number("artifact_id");
    match world.artifacts.iter().find(|a| a.done && a.id == id) {
        Some(_) => {
            Reply::empty(302).header("location", format!("{}/blob/{id}?sig=rest", bases.server))
        }
        None => Reply::error(410, "Gone"),
    }
}

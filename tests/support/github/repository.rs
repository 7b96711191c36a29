//! Endpoints of the repository itself, people, runs, alerts and apps.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::SignedDuration;
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use serde_json::{Value, json};

use super::contract::Contract;
use super::reply::{Asked, Reply};
use super::server::Bases;
use super::world::{Token, World};

pub fn get(world: &mut World, _: &Asked, bases: &Bases) -> Reply {
    Reply::new(200, bases.renderer(world).repository())
}

pub fn permission(world: &mut World, asked: &Asked, bases: &Bases) -> Reply {
    let login = &asked.parameters["username"];
    match world.users.get(login) {
        Some(user) => Reply::new(200, bases.renderer(world).permission(login, user.role)),
        None => Reply::error(404, &format!("{login} is not a user")),
    }
}

pub fn run(world: &mut World, asked: &Asked, bases: &Bases) -> Reply {
    let id = asked.number("run_id");
    match world.runs.get(&id) {
        Some(run) => Reply::new(200, bases.renderer(world).run(id, run.status, run.attempt)),
        None => Reply::error(404, "Not Found"),
    }
}

pub fn dispatch(world: &mut World, asked: &Asked, _: &Bases) -> Reply {
    let workflow = asked.parameters["workflow_id"].clone();
    if world.git.head(asked.text("ref")).is_none() {
        return Reply::error(422, &format!("No ref found for: {}", asked.text("ref")));
    }
    world.dispatches.push((workflow, asked.body.clone()));
    Reply::empty(204)
}

pub fn alerts(world: &mut World, asked: &Asked, bases: &Bases) -> Reply {
    if world.alerts.is_empty() {
        return Reply::error(404, "no analysis found");
    }
    let wanted =
        |alert: &&Value| asked.query("state").is_empty() || alert["state"] == asked.query("state");
    let items = world
        .alerts
        .iter()
        .filter(wanted)
        .map(|alert| Contract::get().shape("code-scanning-alert-items", alert.clone()));
    Reply::page(asked, &bases.server, items.collect())
}

pub fn rate_limit(world: &mut World, _: &Asked, _: &Bases) -> Reply {
    let (limit, used) = (world.limits.primary, world.used.1);
    let reset = world.used.0.as_second() + 3600;
    let rate = json!({
        "limit": limit, "used": used, "remaining": limit.saturating_sub(used), "reset": reset,
    });
    Reply::new(200, json!({"rate": rate, "resources": {"core": rate, "search": rate}}))
}

pub fn installation(world: &mut World, _: &Asked, bases: &Bases) -> Reply {
    match &world.app {
        Some(app) => Reply::new(200, bases.renderer(world).installation(app.installation)),
        None => Reply::error(404, "Not Found"),
    }
}

pub fn mint(world: &mut World, asked: &Asked, bases: &Bases) -> Reply {
    let now = world.now();
    let name = world.name.clone();
    let Some(app) =
        world.app.as_mut().filter(|app| app.installation == asked.number("installation_id"))
    else {
        return Reply::error(404, "Not Found");
    };
    if asked.body["repositories"].as_array().is_some_and(|list| !list.contains(&json!(name))) {
        return Reply::error(422, "There is at least one repository that does not exist");
    }
    app.minted += 1;
    let text = format!("ghs_app{}", app.minted);
    let expires = now + SignedDuration::try_from(Duration::from_secs(3600)).expect("an hour");
    let login = "overhaul-app[bot]".to_owned();
    let uses = app.uses;
    let token = Token { login, grants: vec!["*"], expires: Some(expires), uses };
    world.tokens.insert(text.clone(), token);
    Reply::new(201, bases.renderer(world).installation_token(&text, expires))
}

/// Whether a JWT proves the app, by GitHub's rules.
pub fn proves_app(world: &World, jwt: &str) -> Result<(), String> {
    let app = world.app.as_ref().ok_or("there is no app")?;
    let (signed, signature) = jwt.rsplit_once('.').ok_or("it is no JWT")?;
    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|error| error.to_string());
    let (_, claims) = signed.split_once('.').ok_or("it is no JWT")?;
    let claims: Value =
        serde_json::from_slice(&decode(claims)?).map_err(|error| error.to_string())?;
    let (issued, expires) = (claims["iat"].as_i64(), claims["exp"].as_i64());
    let (issued, expires) = issued.zip(expires).ok_or("it has no times")?;
    let now = world.now().as_second();
    if claims["iss"] != json!(app.id) {
        return Err("the issuer is another app".to_owned());
    }
    if issued > now || expires <= now || expires - now > 600 {
        return Err("'Expiration time' claim ('exp') is too far in the future or past".to_owned());
    }
    UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &app.public_key)
        .verify(signed.as_bytes(), &decode(signature)?)
        .map_err(|_| "A JSON web token could not be decoded".to_owned())
}

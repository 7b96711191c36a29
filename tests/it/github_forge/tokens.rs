//! Credentials: apps, expiry, and that no token ever shows.

use super::*;
use crate::rigs::github::world::App;

/// A rig that knows the app of the test key.
pub(crate) fn with_app(rig: &Rig) -> Credentials {
    use base64::Engine as _;
    use ring::signature::KeyPair as _;
    let encoded: String = KEY.lines().filter(|line| !line.starts_with("-----")).collect();
    let der = base64::engine::general_purpose::STANDARD.decode(encoded).unwrap();
    let key = ring::signature::RsaKeyPair::from_der(&der).unwrap();
    rig.world().app = Some(App {
        id: "4711".to_owned(),
        public_key: key.public_key().as_ref().to_vec(),
        installation: 7,
        minted: 0,
        uses: None,
    });
    Credentials::App { app_id: "4711".to_owned(), private_key: KEY.into(), installation: None }
}

fn minted(rig: &Rig) -> u32 {
    rig.world().app.as_ref().unwrap().minted
}

#[tokio::test]
async fn an_app_mints_its_token_and_again_before_it_expires() {
    let (rig, new) = pushed();
    let credentials = with_app(&rig);
    let github = rig.client_with(credentials);
    github.open_pull_request(new).await.unwrap();
    github.standing().await.unwrap();
    assert_eq!(minted(&rig), 1);
    assert_eq!(rig.world().issues[&1].author, "overhaul-app[bot]");
    // Least privilege: asked for this repository alone.
    let mint = rig.world().log.iter().find(|l| l.target.contains("access_tokens")).cloned();
    assert_eq!(mint.unwrap().body.unwrap()["repositories"], serde_json::json!(["hello"]));
    rig.world().pass(Duration::from_secs(49 * 60));
    github.standing().await.unwrap();
    assert_eq!(minted(&rig), 1);
    rig.world().pass(Duration::from_secs(2 * 60));
    github.standing().await.unwrap();
    assert_eq!(minted(&rig), 2);
    // The installation is looked up once.
    let lookups = rig.requests().iter().filter(|r| r.contains("/installation ")).count();
    assert_eq!(lookups, 1);
}

#[tokio::test]
async fn a_token_that_is_refused_early_is_replaced_once() {
    let rig = Rig::start();
    let credentials = with_app(&rig);
    let github = rig.client_with(credentials);
    github.standing().await.unwrap();
    rig.world().tokens.remove("ghs_app1");
    github.open_issue("Run", "text", "<!-- m -->", &[]).await.unwrap();
    assert_eq!((minted(&rig), rig.world().issues.len()), (2, 1));
    // Refused whatever is minted: told, not repeated for ever.
    rig.fail(Fault::status("GET", "octo/hello", 401).times(100));
    assert!(matches!(github.standing().await, Err(ForgeError::Forbidden { .. })));
    assert_eq!(minted(&rig), 3);
}

#[tokio::test]
async fn minting_survives_trouble_and_tells_a_missing_installation() {
    let rig = Rig::start();
    let credentials = with_app(&rig);
    rig.fail(Fault::status("GET", "installation", 502));
    rig.fail(Fault::status("POST", "access_tokens", 500).times(2));
    rig.client_with(credentials.clone()).standing().await.unwrap();
    rig.world().app.as_mut().unwrap().id = "other".to_owned();
    let error = rig.client_with(credentials).standing().await.unwrap_err();
    assert!(matches!(error, ForgeError::Forbidden { .. }), "{error}");
    rig.world().app = None;
    let credentials = with_app(&rig);
    rig.fail(Fault::status("GET", "installation", 404));
    let error = rig.client_with(credentials).standing().await.unwrap_err();
    assert!(error.to_string().contains("installation of the app"), "{error}");
}

#[tokio::test]
async fn credentials_that_cannot_work_are_refused_at_once() {
    let rig = Rig::start();
    let empty = GitHub::connect(rig.settings(Credentials::Workflow("".into())));
    assert!(matches!(empty, Err(ForgeError::Forbidden { .. })));
    let key = Credentials::App {
        app_id: "1".to_owned(),
        private_key: "not a key".into(),
        installation: None,
    };
    let error = GitHub::connect(rig.settings(key)).unwrap_err();
    assert!(!error.to_string().contains("not a key"));
}

#[tokio::test]
async fn no_token_shows_in_an_error_or_in_debug() {
    let rig = Rig::start();
    rig.world().add_issue("reader", "One", "");
    let credentials = with_app(&rig);
    for (credentials, token) in
        [(Credentials::Workflow("ghs_workflow".into()), "ghs_workflow"), (credentials, "ghs_app1")]
    {
        let github = rig.client_with(credentials);
        github.standing().await.unwrap();
        // A proxy that echoes what it was sent.
        let echo = format!(r#"{{"message":"bad header: Bearer {token}","errors":["{token}"]}}"#);
        for status in [400, 401, 403, 404, 410, 422, 451, 500] {
            rig.fail(Fault::status("PATCH", "issues/1", status).body(&echo).times(9));
            let error = github.update_issue(1, Some("x"), None).await.unwrap_err();
            let shown = format!("{error} {error:?} {github:?}");
            assert!(!shown.contains(token), "{shown}");
            assert!(!shown.contains("PRIVATE KEY"), "{shown}");
            rig.clear_faults();
        }
    }
    // Not a token at all: told without it.
    let odd = rig.client_with(Credentials::Token("ghp_a\nb".into()));
    let error = odd.standing().await.unwrap_err();
    assert!(!format!("{error:?}").contains("ghp_a"), "{error}");
}

//! Which token a request carries.
//!
//! An app's installation token lives one hour and cannot be renewed, only minted again; it is at
//! 50 minutes or as soon as the server refuses it.

use std::time::Duration;

use jiff::Timestamp;
use ring::signature::RsaKeyPair;
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Mutex;

use super::call::{Call, Trouble};
use super::client::Client;
use super::jwt;
use super::pace::after;
use super::settings::{Credentials, GitHubSettings};
use crate::forge::ForgeError;

/// Age at which an app's token is minted again; it dies at 60 minutes.
const LIFE: Duration = Duration::from_secs(50 * 60);
const APP: &str = "an installation of the app on the repository";

/// Where tokens come from.
pub(super) enum Auth {
    /// One token for the whole life of the process.
    Fixed(SecretString),
    /// Minted as needed.
    App(Box<App>),
}

/// A GitHub App.
pub(super) struct App {
    id: String,
    key: RsaKeyPair,
    minted: Mutex<Minted>,
}

#[derive(Default)]
struct Minted {
    installation: Option<u64>,
    token: Option<(SecretString, Timestamp)>,
}

#[derive(Deserialize)]
struct Installation {
    id: u64,
}

#[derive(Deserialize)]
struct InstallationToken {
    token: String,
}

impl Auth {
    /// # Errors
    /// When there is no token, or the app's key is not usable.
    pub(super) fn new(settings: &GitHubSettings) -> Result<Self, ForgeError> {
        let nothing = |token: &SecretString| {
            use secrecy::ExposeSecret as _;
            token.expose_secret().trim().is_empty()
        };
        match &settings.credentials {
            Credentials::Workflow(token) | Credentials::Token(token) if nothing(token) => {
                Err(ForgeError::Forbidden {
                    action: "use GitHub".to_owned(),
                    message: "the token is empty".to_owned(),
                    remedy: "pass `token: ${{ github.token }}` or an app's credentials".to_owned(),
                })
            }
            Credentials::Workflow(token) | Credentials::Token(token) => {
                Ok(Self::Fixed(token.clone()))
            }
            Credentials::App { app_id, private_key, installation } => {
                let key = jwt::read_key(private_key).map_err(|reason| ForgeError::Forbidden {
                    action: "act as a GitHub App".to_owned(),
                    message: format!("the private key cannot be used: {reason}"),
                    remedy: "give the app's private key as GitHub generated it".to_owned(),
                })?;
                let minted = Minted { installation: *installation, token: None };
                let id = app_id.trim().to_owned();
                Ok(Self::App(Box::new(App { id, key, minted: Mutex::new(minted) })))
            }
        }
    }

    /// Whether a refused token can be replaced.
    pub(super) fn can_mint(&self) -> bool {
        matches!(self, Self::App(_))
    }

    /// Forgets the app's token, so that the next request mints one.
    pub(super) async fn forget(&self) {
        if let Self::App(app) = self {
            app.minted.lock().await.token = None;
        }
    }

    /// The token to send now.
    pub(super) async fn token(&self, client: &Client) -> Result<SecretString, Trouble> {
        match self {
            Self::Fixed(token) => Ok(token.clone()),
            Self::App(app) => app.token(client).await,
        }
    }
}

impl App {
    async fn token(&self, client: &Client) -> Result<SecretString, Trouble> {
        let mut minted = self.minted.lock().await;
        let now = client.now();
        if let Some((token, since)) = &minted.token
            && now < after(*since, LIFE)
        {
            return Ok(token.clone());
        }
        let installation = match minted.installation {
            Some(id) => id,
            None => {
                let path = format!("{}/installation", client.repository_path());
                let call = Call::get(path, "find the app's installation", "metadata: read");
                self.ask::<Installation>(client, call).await?.id
            }
        };
        minted.installation = Some(installation);
        let call = Call::post(
            format!("/app/installations/{installation}/access_tokens"),
            // Only this repository, whatever else the app is installed on.
            json!({"repositories": [client.repository_name()]}),
            "mint a token of the app",
            "metadata: read",
        );
        let token = self.ask::<InstallationToken>(client, call).await?.token;
        let token = SecretString::from(token);
        client.keep_secret(&token);
        minted.token = Some((token.clone(), now));
        Ok(token)
    }

    /// A call as the app itself. Repeating one does no harm: a token too many just expires.
    async fn ask<T: serde::de::DeserializeOwned>(
        &self,
        client: &Client,
        call: Call,
    ) -> Result<T, Trouble> {
        let jwt = jwt::sign(&self.key, &self.id, client.now())
            .map_err(|reason| Trouble::Ambiguous(reason.to_owned()))?;
        let answer = client.send_as(&call.on(APP).repeatable(), Some(&jwt)).await?;
        serde_json::from_slice(&answer.body).map_err(|_| {
            Trouble::Ambiguous("an answer about the app that is not understood".into())
        })
    }
}

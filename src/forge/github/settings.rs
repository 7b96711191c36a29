//! How to reach a repository on GitHub, and with whose rights.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use url::Url;

use super::pace::{SystemTime, Time};
use crate::forge::ForgeError;
use crate::model::CiMode;

/// Whose rights requests carry. Secrets never show in `Debug`.
#[derive(Debug, Clone)]
pub enum Credentials {
    /// The job's own `GITHUB_TOKEN`.
    Workflow(SecretString),
    /// A personal access token, or an app's token that was minted elsewhere.
    Token(SecretString),
    /// A GitHub App: tokens are minted here and minted again before they expire.
    App {
        /// The app's id or client id: the issuer of its JWTs.
        app_id: String,
        /// Its RSA key in PEM, PKCS#1 (as GitHub hands it out) or PKCS#8.
        private_key: SecretString,
        /// The installation; looked up by repository when absent.
        installation: Option<u64>,
    },
}

/// Where the repository is and how to reach it.
#[derive(Clone)]
pub struct GitHubSettings {
    /// Owner: a user or an organisation.
    pub owner: String,
    /// Repository name without the owner.
    pub repository: String,
    /// REST root, e.g. `https://api.github.com` or `https://HOST/api/v3`.
    pub api_url: Url,
    /// GraphQL endpoint; on GHES not below the REST root.
    pub graphql_url: Url,
    /// Address for people and for git.
    pub server_url: Url,
    /// Whose rights.
    pub credentials: Credentials,
    /// Least time between two writes. GitHub asks for one second.
    pub write_spacing: Duration,
    /// A limit that ends within this is waited for; a longer one is an error with its end.
    pub longest_wait: Duration,
    /// Clock and sleep.
    pub time: Arc<dyn Time>,
}

impl fmt::Debug for GitHubSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GitHubSettings")
            .field("owner", &self.owner)
            .field("repository", &self.repository)
            .field("api_url", &self.api_url.as_str())
            .field("credentials", &self.credentials)
            .finish_non_exhaustive()
    }
}

impl GitHubSettings {
    /// Settings for `owner/repository` on github.com.
    ///
    /// # Errors
    /// [`ForgeError::Invalid`] when `slug` is no `owner/repository`.
    pub fn new(slug: &str, credentials: Credentials) -> Result<Self, ForgeError> {
        let (owner, repository) = slug
            .split_once('/')
            .filter(|(owner, repository)| is_name(owner) && is_name(repository))
            .ok_or_else(|| ForgeError::Invalid(format!("{slug:?} is no owner/repository")))?;
        Ok(Self {
            owner: owner.to_owned(),
            repository: repository.to_owned(),
            api_url: address("https://api.github.com")?,
            graphql_url: address("https://api.github.com/graphql")?,
            server_url: address("https://github.com")?,
            credentials,
            write_spacing: Duration::from_secs(1),
            longest_wait: Duration::from_secs(90),
            time: Arc::new(SystemTime),
        })
    }

    /// Takes the addresses that the runner names: `GITHUB_API_URL`, `GITHUB_GRAPHQL_URL` and
    /// `GITHUB_SERVER_URL`. Absent ones stay as they are, except that a GHES without
    /// `GITHUB_GRAPHQL_URL` is given `/api/graphql`.
    ///
    /// # Errors
    /// [`ForgeError::Invalid`] when one is no http address.
    pub fn addresses(
        mut self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ForgeError> {
        let named = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        if let Some(text) = named("GITHUB_API_URL") {
            self.api_url = address(text.trim())?;
            self.graphql_url = graphql_beside(&self.api_url)?;
        }
        if let Some(text) = named("GITHUB_GRAPHQL_URL") {
            self.graphql_url = address(text.trim())?;
        }
        if let Some(text) = named("GITHUB_SERVER_URL") {
            self.server_url = address(text.trim())?;
        }
        Ok(self)
    }

    /// Whether workflows run on pull requests that these credentials open.
    #[must_use]
    pub fn ci_mode(&self) -> CiMode {
        match self.credentials {
            Credentials::Token(_) | Credentials::App { .. } => CiMode::Automatic,
            Credentials::Workflow(_) if self.is_hosted() => CiMode::Approval,
            Credentials::Workflow(_) => CiMode::Never,
        }
    }

    /// github.com or a data-residency host of GitHub Enterprise Cloud, as opposed to GHES.
    fn is_hosted(&self) -> bool {
        self.server_url
            .host_str()
            .is_some_and(|host| host == "github.com" || host.ends_with(".ghe.com"))
    }
}

/// The characters that owner and repository names are made of.
fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !text.is_empty() && text.len() <= 100 && text.chars().all(plain) && text != "." && text != ".."
}

fn address(text: &str) -> Result<Url, ForgeError> {
    Url::parse(text)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
        .ok_or_else(|| ForgeError::Invalid(format!("{text:?} is no http address")))
}

/// `https://HOST/api/v3` has its GraphQL at `https://HOST/api/graphql`, any other root below it.
fn graphql_beside(api: &Url) -> Result<Url, ForgeError> {
    let root = api.as_str().trim_end_matches('/');
    address(&format!("{}/graphql", root.strip_suffix("/v3").unwrap_or(root)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(credentials: Credentials) -> GitHubSettings {
        GitHubSettings::new("octo/hello", credentials).unwrap()
    }

    fn with(pairs: &[(&str, &str)]) -> Result<GitHubSettings, ForgeError> {
        settings(Credentials::Workflow("t".into())).addresses(|name| {
            pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn a_slug_is_two_plain_names() {
        for bad in ["octo", "octo/", "/hello", "a/b/c", "octo/..", "octo/he llo", "octo/%2e"] {
            let refused = GitHubSettings::new(bad, Credentials::Token("t".into()));
            assert!(refused.is_err(), "{bad}");
        }
    }

    #[test]
    fn an_enterprise_server_keeps_its_prefix_and_its_own_graphql() {
        let ghes = with(&[("GITHUB_API_URL", "https://ghe.example/api/v3")]).unwrap();
        assert_eq!(ghes.graphql_url.as_str(), "https://ghe.example/api/graphql");
        let named = with(&[
            ("GITHUB_API_URL", "https://ghe.example/api/v3"),
            ("GITHUB_GRAPHQL_URL", "https://ghe.example/other"),
        ]);
        assert_eq!(named.unwrap().graphql_url.as_str(), "https://ghe.example/other");
        assert!(with(&[("GITHUB_API_URL", "file:///etc")]).is_err());
    }

    #[test]
    fn ci_depends_on_who_acts_and_where() {
        assert_eq!(settings(Credentials::Token("t".into())).ci_mode(), CiMode::Automatic);
        assert_eq!(settings(Credentials::Workflow("t".into())).ci_mode(), CiMode::Approval);
        let ghes = with(&[("GITHUB_SERVER_URL", "https://ghe.example")]).unwrap();
        assert_eq!(ghes.ci_mode(), CiMode::Never);
    }

    #[test]
    fn debug_shows_no_secret() {
        let app = Credentials::App {
            app_id: "1".to_owned(),
            private_key: "very-secret-key".into(),
            installation: None,
        };
        for credentials in [Credentials::Token("very-secret-token".into()), app] {
            let shown = format!("{:?}", settings(credentials));
            assert!(!shown.contains("very-secret"), "{shown}");
        }
    }
}

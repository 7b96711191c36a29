//! `exclude`: which declared pools not to use.

use std::fmt;

use super::PoolConfig;
use super::pool::provider_name;
use crate::model::Provider;

/// One exclusion: `provider`, `provider:model`, or an endpoint `host[:port]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exclusion {
    /// Every pool of the provider.
    Provider(Provider),
    /// This model of the provider; case ignored.
    Model(Provider, String),
    /// Every pool on this endpoint, any port.
    Host(String),
    /// Every pool on this endpoint and port.
    HostPort(String, u16),
}

/// Why a text is no exclusion.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no exclusion")]
pub struct ExclusionError(String);

/// Every provider.
const PROVIDERS: [Provider; 8] = [
    Provider::OpenaiCompatible,
    Provider::Codex,
    Provider::Opencode,
    Provider::ClaudeWorker,
    Provider::Agy,
    Provider::SubprocessTemplate,
    Provider::WorkerCommand,
    Provider::Host,
];

/// The providers' names, for people.
pub(super) fn provider_names() -> String {
    PROVIDERS.map(|provider| format!("`{}`", provider_name(provider))).join(", ")
}

impl Exclusion {
    /// Reads one pattern. Case is ignored, since an exclusion must rather match too much.
    ///
    /// # Errors
    /// When the text is neither a provider, nor `provider:model`, nor `host[:port]`.
    pub fn parse(text: &str) -> Result<Self, ExclusionError> {
        let error = || ExclusionError(text.to_owned());
        let lower = text.trim().to_ascii_lowercase();
        let (first, second) = match lower.split_once(':') {
            Some((first, second)) => (first, Some(second)),
            None => (lower.as_str(), None),
        };
        if let Some(provider) = PROVIDERS.into_iter().find(|p| provider_name(*p) == first) {
            return match second.map(str::trim) {
                None => Ok(Self::Provider(provider)),
                Some("") => Err(error()),
                Some(model) => Ok(Self::Model(provider, model.to_owned())),
            };
        }
        // An address in brackets contains colons of its own.
        let (host, port) = match lower.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, Some(port.parse::<u16>().map_err(|_| error())?))
            }
            _ => (lower.as_str(), None),
        };
        let name_like = host.contains('.') || host.starts_with('[') || host == "localhost";
        let safe = host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b));
        if host.is_empty() || !safe || (port.is_none() && !name_like) {
            return Err(error());
        }
        Ok(match port {
            Some(port) => Self::HostPort(host.to_owned(), port),
            None => Self::Host(host.to_owned()),
        })
    }

    /// Does it exclude this pool?
    #[must_use]
    pub fn matches(&self, pool: &PoolConfig) -> bool {
        let endpoint = || url::Url::parse(pool.address()?).ok();
        // A pool without an address may name the service behind it.
        let backend = pool.backend.as_deref().unwrap_or("");
        let same_host = |host: &str| {
            backend.eq_ignore_ascii_case(host)
                || endpoint().and_then(|url| url.host_str().map(|h| h.eq_ignore_ascii_case(host)))
                    == Some(true)
        };
        match self {
            Self::Provider(provider) => pool.provider == *provider,
            Self::Model(provider, model) => {
                pool.provider == *provider && pool.model.eq_ignore_ascii_case(model)
            }
            Self::Host(host) => same_host(host),
            Self::HostPort(host, port) => {
                // An unknown port counts as the same: exclusions fail closed.
                let there = endpoint().and_then(|url| url.port_or_known_default());
                backend.eq_ignore_ascii_case(&self.to_string())
                    || (same_host(host) && there.is_none_or(|there| there == *port))
            }
        }
    }
}

impl fmt::Display for Exclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Provider(provider) => f.write_str(provider_name(*provider)),
            Self::Model(provider, model) => write!(f, "{}:{model}", provider_name(*provider)),
            Self::Host(host) => f.write_str(host),
            Self::HostPort(host, port) => write!(f, "{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Exclusion;
    use crate::config::PoolConfig;
    use crate::model::Provider;

    #[test]
    fn each_form_matches_its_pools() {
        let mut pool = PoolConfig::new(Provider::OpenaiCompatible, "qwen3:8b");
        pool.base_url = Some("http://nim.example.net:8000/v1".to_owned());
        for text in [
            "openai-compatible",
            "openai-compatible:qwen3:8b",
            "OpenAI-compatible:Qwen3:8B",
            "nim.example.net",
            "NIM.example.net:8000",
        ] {
            assert!(Exclusion::parse(text).unwrap().matches(&pool), "{text}");
        }
        for text in ["codex", "openai-compatible:qwen3", "example.net", "nim.example.net:443"] {
            assert!(!Exclusion::parse(text).unwrap().matches(&pool), "{text}");
        }
        pool.backend = Some("api.example.com".to_owned());
        assert!(Exclusion::parse("API.example.com").unwrap().matches(&pool));
        assert!(!Exclusion::parse("api.example.com:443").unwrap().matches(&pool));
        pool.base_url = None;
        assert!(Exclusion::parse("api.example.com:443").unwrap().matches(&pool));
        pool.base_url = Some("https://[::1]/v1".to_owned());
        assert!(Exclusion::parse("[::1]:443").unwrap().matches(&pool));
        for text in
            ["", "opanai", "openai-compatible:", "https://a.example/v1", "a.b:port", "a b.c"]
        {
            assert!(Exclusion::parse(text).is_err(), "{text}");
        }
    }
}

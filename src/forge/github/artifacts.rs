//! Workflow artifacts of every run of the repository, for reading.

use serde::Deserialize;

use super::GitHub;
use super::call::{Call, Trouble};
use crate::forge::ForgeError;

/// Pages of artifacts, newest first: 1 000.
const PAGES: usize = 10;
/// Largest artifact that is read, bytes.
const LARGEST: usize = 512 << 20;
const READ: &str = "actions: read";

impl GitHub {
    /// Id and name of the artifacts that are not expired, of one name or of all.
    ///
    /// # Errors
    /// As any call; when there are more than can be looked through.
    pub async fn artifacts(&self, name: Option<&str>) -> Result<Vec<(u64, String)>, ForgeError> {
        #[derive(Deserialize)]
        struct Page {
            #[serde(default)]
            artifacts: Vec<Found>,
        }
        #[derive(Deserialize)]
        struct Found {
            id: u64,
            name: String,
            #[serde(default)]
            expired: bool,
        }
        let mut all = Vec::new();
        for number in 1..=PAGES {
            let mut call = Call::get(self.path("actions/artifacts"), "list artifacts", READ)
                .query("per_page", "100")
                .query("page", number.to_string())
                .on("the artifacts");
            if let Some(name) = name {
                call = call.query("name", name);
            }
            let page: Page = self.client.object(&call).await?;
            let full = page.artifacts.len() == 100;
            let good = page.artifacts.into_iter().filter(|found| !found.expired);
            all.extend(good.map(|found| (found.id, found.name)));
            if !full {
                return Ok(all);
            }
        }
        Err(ForgeError::Unavailable("more than 1000 artifacts can't be looked through".to_owned()))
    }

    /// The content of an artifact.
    ///
    /// # Errors
    /// As any call.
    pub async fn artifact(&self, id: u64) -> Result<Vec<u8>, ForgeError> {
        let call =
            Call::get(self.path(&format!("actions/artifacts/{id}/zip")), "read an artifact", READ)
                .on(format!("artifact {id}"))
                .redirected();
        let answer = self.client.send(&call).await?;
        let address = answer.header("location").map(str::to_owned).ok_or_else(|| {
            Trouble::Ambiguous(format!("artifact {id} has no address to read it from"))
        })?;
        Ok(self.client.elsewhere(&address, LARGEST).await?)
    }
}

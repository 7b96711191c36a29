//! What people may do: asked of the forge, once each, and never guessed.

use std::collections::BTreeMap;

use super::CycleError;
use crate::commands::Access;
use crate::forge::{Forge, ForgeError, Permission};

/// What people may do, asked once each.
pub(super) struct Accesses<'a> {
    forge: &'a dyn Forge,
    known: BTreeMap<String, Access>,
}

impl<'a> Accesses<'a> {
    pub(super) fn new(forge: &'a dyn Forge) -> Self {
        Self { forge, known: BTreeMap::new() }
    }

    /// # Errors
    /// When the forge does not say.
    pub(super) async fn of(&mut self, login: &str) -> Result<Access, CycleError> {
        if let Some(known) = self.known.get(login) {
            return Ok(*known);
        }
        let access = match self.forge.permission(login).await {
            Ok(permission) => access(permission),
            // Nobody that the repository knows.
            Err(ForgeError::NotFound(_)) => Access::None,
            Err(error) => return Err(error.into()),
        };
        self.known.insert(login.to_owned(), access);
        Ok(access)
    }
}

fn access(permission: Permission) -> Access {
    match permission {
        Permission::None => Access::None,
        Permission::Read => Access::Read,
        Permission::Triage => Access::Triage,
        Permission::Write => Access::Write,
        Permission::Maintain => Access::Maintain,
        Permission::Admin => Access::Admin,
    }
}

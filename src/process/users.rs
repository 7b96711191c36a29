//! Users of their own for the children of root: what the kernel keeps apart even without Landlock,
//! sockets among it.

use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use caps::{CapSet, Capability};
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::{Gid, Uid, geteuid, setgroups, setresgid, setresuid};

/// The first of the users: a range that neither people nor services get (systemd's table of user
/// ids leaves 60578 to 60705 unused).
const FIRST: u32 = 60_578;

/// How many there are; more slots than that share.
const COUNT: u32 = 128;

/// Whether children can have users of their own: we are root, and what they need is open to all
/// users. The error says in one phrase why not.
///
/// `own` is a folder of ours to try it in: where users are mapped, as in some containers, the ones we
/// take need not exist.
///
/// # Errors
/// When this is not root, lacks a capability or the users, or one of `own`, `read` and `write` is
/// closed for others.
pub fn can_separate(own: &Path, read: &[PathBuf], write: &[PathBuf]) -> Result<(), String> {
    if !geteuid().is_root() {
        return Err("this is not root".to_owned());
    }
    for need in [
        Capability::CAP_SETUID,
        Capability::CAP_SETGID,
        Capability::CAP_CHOWN,
        Capability::CAP_FOWNER,
        Capability::CAP_KILL,
        Capability::CAP_DAC_OVERRIDE,
    ] {
        if !caps::has_cap(None, CapSet::Effective, need).unwrap_or(false) {
            return Err(format!("root lacks {need} here"));
        }
    }
    let mapped = std::fs::read_to_string("/proc/self/setgroups").unwrap_or_default();
    let probe = own.join("user-probe");
    let given = std::fs::write(&probe, "").and_then(|()| {
        [FIRST, FIRST + COUNT - 1]
            .iter()
            .try_for_each(|user| lchown(&probe, Some(*user), Some(*user)))
    });
    let _ = std::fs::remove_file(&probe);
    if mapped.trim() == "deny" || given.is_err() {
        return Err(format!("users {FIRST} to {} do not exist here", FIRST + COUNT - 1));
    }
    let closed = |path: &Path, bit: u32| {
        std::fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & bit == 0)
    };
    let own = [own.to_path_buf()];
    for (paths, file_bit) in [(own.as_slice(), 0o004), (read, 0o004), (write, 0o002)] {
        for path in paths {
            let Ok(real) = path.canonicalize() else { continue };
            let above = real.ancestors().skip(1).find(|folder| closed(folder, 0o001));
            if let Some(folder) = above.or_else(|| closed(&real, file_bit).then_some(&*real)) {
                return Err(format!("{} is closed for other users", folder.display()));
            }
        }
    }
    Ok(())
}

/// Gives a folder with all that is in it to the user of the slot with this number, and closes it for
/// all others. Links are not followed; what has several names is left alone, for one of them may lie
/// elsewhere.
///
/// # Errors
/// When the system refuses.
pub fn hand_over(folder: &Path, slot: usize) -> std::io::Result<()> {
    let user = FIRST + u32::try_from(slot % COUNT as usize).unwrap_or(0);
    let mut stack = vec![folder.to_path_buf()];
    while let Some(path) = stack.pop() {
        let meta = path.symlink_metadata()?;
        if meta.uid() != user && (meta.is_dir() || meta.nlink() == 1) {
            lchown(&path, Some(user), Some(user))?;
        }
        if meta.is_dir() {
            for entry in std::fs::read_dir(&path)? {
                stack.push(entry?.path());
            }
        }
    }
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))
}

/// Root becomes the owner of its working directory, if that is another user; tells whether it did.
pub(super) fn become_owner(tasks: Option<u64>) -> Result<bool, String> {
    let owner = std::fs::metadata(".").map(|meta| (meta.uid(), meta.gid()));
    let (user, group) = owner.map_err(|e| format!("the working directory can't be read: {e}"))?;
    if !geteuid().is_root() || user == 0 {
        return Ok(false);
    }
    let refused = |error| format!("becoming user {user} was refused: {error}");
    if let Some(tasks) = tasks {
        setrlimit(Resource::RLIMIT_NPROC, tasks, tasks).map_err(refused)?;
    }
    let (user_id, group_id) = (Uid::from_raw(user), Gid::from_raw(group));
    setgroups(&[]).map_err(refused)?;
    setresgid(group_id, group_id, group_id).map_err(refused)?;
    setresuid(user_id, user_id, user_id).map_err(refused)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::{FIRST, can_separate, hand_over};

    #[test]
    fn what_is_closed_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let open = |mode| {
            std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            can_separate(&inner, std::slice::from_ref(&inner), &[])
        };
        let refused = open(0o700).unwrap_err();
        if !nix::unistd::geteuid().is_root() {
            assert_eq!(refused, "this is not root");
            return;
        }
        assert_eq!(refused, format!("{} is closed for other users", dir.path().display()));
        assert_eq!(open(0o711), Ok(()));
        let write = can_separate(&inner, &[], std::slice::from_ref(&inner)).unwrap_err();
        assert!(write.contains("inner is closed"), "{write}");
    }

    #[test]
    fn a_folder_is_handed_over_without_following_anything() {
        if !nix::unistd::geteuid().is_root() {
            println!("NOT VERIFIED HERE: only root can give files away");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (outside, tree) = (dir.path().join("outside"), dir.path().join("tree"));
        std::fs::create_dir_all(tree.join("sub")).unwrap();
        std::fs::write(&outside, "").unwrap();
        std::fs::write(tree.join("sub/file"), "").unwrap();
        symlink(&outside, tree.join("link")).unwrap();
        std::fs::hard_link(&outside, tree.join("hard")).unwrap();
        hand_over(&tree, 3).unwrap();
        let owner = |path: &std::path::Path| path.symlink_metadata().unwrap().uid();
        for inside in [tree.clone(), tree.join("sub/file"), tree.join("link")] {
            assert_eq!(owner(&inside), FIRST + 3, "{inside:?}");
        }
        assert_eq!((owner(&outside), owner(&tree.join("hard"))), (0, 0));
        assert_eq!(tree.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    }
}

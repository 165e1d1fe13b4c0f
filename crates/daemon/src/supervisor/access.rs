//! Who may connect, and what users are called.
//!
//! Names come from `/etc/passwd` alone: asking a directory service could block the supervisor on a
//! network. Users that only such a service knows are given and shown by their numbers.

use std::collections::BTreeSet;
use std::fs;

use crate::config::{AllowUsers, Problem};

/// Decides by a peer's user id, as the kernel reports it.
#[derive(Debug)]
pub(super) struct Access {
    owner: u32,
    allowed: Allowed,
}

#[derive(Debug)]
enum Allowed {
    All,
    These(BTreeSet<u32>),
}

impl Access {
    pub(super) fn new(owner: u32, users: &AllowUsers) -> Result<Self, Problem> {
        let allowed = match users {
            AllowUsers::Owner => Allowed::These(BTreeSet::new()),
            AllowUsers::All => Allowed::All,
            AllowUsers::Users(names) => {
                let passwd = read_passwd();
                let uids: Result<_, _> = names.iter().map(|name| uid_of(name, &passwd)).collect();
                Allowed::These(uids?)
            }
        };
        Ok(Self { owner, allowed })
    }

    pub(super) fn owner(&self) -> u32 {
        self.owner
    }

    pub(super) fn admits(&self, uid: u32) -> bool {
        self.is_operator(uid)
            || match &self.allowed {
                Allowed::All => true,
                Allowed::These(uids) => uids.contains(&uid),
            }
    }

    /// Whether this user may change how a session of that user is treated.
    pub(super) fn may_change(&self, uid: u32, of: u32) -> bool {
        self.is_operator(uid) || uid == of
    }

    /// Whether this user may end the service.
    pub(super) fn is_operator(&self, uid: u32) -> bool {
        uid == self.owner || uid == 0
    }
}

/// The user's name, or the number where it has none.
pub fn name_of(uid: u32) -> String {
    entries(&read_passwd())
        .find(|(_, number)| *number == uid)
        .map_or_else(|| uid.to_string(), |(name, _)| name.to_owned())
}

fn uid_of(name: &str, passwd: &str) -> Result<u32, Problem> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    entries(passwd)
        .find(|(known, _)| *known == name)
        .map(|(_, uid)| uid)
        .ok_or_else(|| {
            Problem::new(format!(
                "`allow_users` names `{name}`, who is not in /etc/passwd"
            ))
            .hint("give the user's number (`id -u NAME`) if another service knows the name")
        })
}

fn read_passwd() -> String {
    fs::read("/etc/passwd")
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}

fn entries(passwd: &str) -> impl Iterator<Item = (&str, u32)> {
    passwd.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let uid = fields.nth(1)?.parse().ok()?;
        Some((name, uid))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nanna:x:1000:1000::/home/anna:/bin/sh\n";

    #[test]
    fn the_owner_and_root_always_come_in_and_others_only_if_named() {
        let closed = Access::new(1000, &AllowUsers::Owner).expect("no names to look up");
        assert!(closed.admits(1000) && closed.admits(0) && !closed.admits(1001));
        let open = Access::new(1000, &AllowUsers::All).expect("no names to look up");
        assert!(open.admits(4711));
        assert!(!open.is_operator(4711));
        assert!(open.may_change(4711, 4711) && !open.may_change(4711, 4712));
        assert!(open.may_change(1000, 4712) && open.may_change(0, 4712));
        let some = Access::new(1000, &AllowUsers::Users(vec!["1001".into()])).expect("a number");
        assert!(some.admits(1001) && !some.admits(1002));
    }

    #[test]
    fn an_unknown_name_is_an_error() {
        assert_eq!(uid_of("anna", PASSWD), Ok(1000));
        assert_eq!(uid_of("1234", PASSWD), Ok(1234));
        let problem = uid_of("bert", PASSWD).expect_err("not there");
        assert_eq!(
            problem.what,
            "`allow_users` names `bert`, who is not in /etc/passwd"
        );
    }
}

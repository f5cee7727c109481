//! A set of roles.

use super::Role;

/// Roles in their order, each once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles([bool; Role::ALL.len()]);

impl Roles {
    /// In order.
    pub fn iter(self) -> impl Iterator<Item = Role> {
        let pairs = Role::ALL.into_iter().zip(self.0);
        pairs.filter_map(|(role, is_in)| is_in.then_some(role))
    }

    /// How many.
    #[must_use]
    pub fn len(self) -> usize {
        self.iter().count()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The one that there is; `None` for none or several.
    #[must_use]
    pub fn only(self) -> Option<Role> {
        self.iter().next().filter(|_| self.len() == 1)
    }

    /// Whether all of `others` are among these.
    #[must_use]
    pub fn hold(self, others: Roles) -> bool {
        others.iter().all(|role| self.iter().any(|own| own == role))
    }
}

impl FromIterator<Role> for Roles {
    fn from_iter<I: IntoIterator<Item = Role>>(roles: I) -> Roles {
        let roles: Vec<Role> = roles.into_iter().collect();
        Roles(Role::ALL.map(|role| roles.contains(&role)))
    }
}

impl From<Option<Role>> for Roles {
    fn from(role: Option<Role>) -> Roles {
        role.into_iter().collect()
    }
}

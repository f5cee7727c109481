//! The two listeners: bound here, or passed by who has started kvgauge.

use crate::config::Settings;
use crate::net::{self, Inherited};
use anyhow::Context as _;
use std::net::{SocketAddr, TcpListener};

/// A listener and where it is.
pub struct Place {
    pub listener: TcpListener,
    pub addr: SocketAddr,
    /// It was passed, and the address in the settings is not used.
    pub passed: bool,
}

/// Both.
pub struct Sockets {
    pub clients: Place,
    pub operators: Place,
}

/// The listeners' keys, which are their names among sockets that are passed (`FileDescriptorName=`), in
/// the order in which they come without names.
const KEYS: [&str; 2] = ["listen", "admin.listen"];

// === impl Sockets ===

impl Sockets {
    /// Those that are passed, and the others bound.
    ///
    /// # Errors
    /// When an address can't be bound, or sockets are passed that fit nowhere.
    pub fn open(settings: &Settings) -> anyhow::Result<Sockets> {
        let passed = net::inherited()
            .context("The sockets that were passed (socket activation) can't be used")?;
        Sockets::with(passed, settings)
    }

    /// Both bound.
    ///
    /// # Errors
    /// When an address can't be bound.
    pub fn bind(settings: &Settings) -> anyhow::Result<Sockets> {
        Sockets::with(Vec::new(), settings)
    }

    fn with(passed: Vec<Inherited>, settings: &Settings) -> anyhow::Result<Sockets> {
        let wanted = [settings.listen, settings.admin.listen];
        let [clients, operators] = places(passed, wanted)?;
        let sockets = Sockets {
            clients: clients.map_or_else(|| bind(wanted[0], KEYS[0]), Ok)?,
            operators: operators.map_or_else(|| bind(wanted[1], KEYS[1]), Ok)?,
        };
        for ((place, key), unused) in [&sockets.clients, &sockets.operators]
            .into_iter()
            .zip(KEYS)
            .zip(wanted)
        {
            if place.passed && place.addr != unused {
                let addr = place.addr;
                tracing::info!("a socket was passed for {addr}: {key} = {unused} is not used");
            }
        }
        Ok(sockets)
    }
}

/// Which socket is whose: by its name (`listen`, `admin`), else by its address, else by its place in the
/// row.
fn places(passed: Vec<Inherited>, wanted: [SocketAddr; 2]) -> anyhow::Result<[Option<Place>; 2]> {
    let mut places = [None, None];
    let count = passed.len();
    let mut left = Vec::new();
    for socket in passed {
        let addr = socket.listener.local_addr()?;
        let named = match socket.name.as_deref() {
            Some("listen") => Some(0),
            Some("admin" | "admin.listen") => Some(1),
            _ => None,
        };
        let place = Place {
            listener: socket.listener,
            addr,
            passed: true,
        };
        match named {
            Some(at) if places[at].is_none() => places[at] = Some(place),
            Some(at) => anyhow::bail!(
                "Two sockets were passed for {}: {addr} is one too many; give it another FileDescriptorName=, or take it out of the unit",
                KEYS[at]
            ),
            None => left.push(place),
        }
    }
    let mut others = Vec::new();
    for place in left {
        let fits = |at: &usize| places[*at].is_none() && wanted[*at] == place.addr;
        match (0..KEYS.len()).find(fits) {
            Some(at) => places[at] = Some(place),
            None => others.push(place),
        }
    }
    for place in others {
        let Some(free) = places.iter_mut().find(|place| place.is_none()) else {
            anyhow::bail!(
                "{count} sockets were passed, and kvgauge has two listeners: {} is one too many; take it out of the unit",
                place.addr
            );
        };
        *free = Some(place);
    }
    Ok(places)
}

fn bind(addr: SocketAddr, key: &str) -> anyhow::Result<Place> {
    let listener = net::bind(addr).with_context(|| {
        format!("{addr} ({key}) can't be listened on: choose another address, or end what uses it")
    })?;
    let addr = listener.local_addr()?;
    Ok(Place {
        listener,
        addr,
        passed: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(name: Option<&str>) -> (Inherited, SocketAddr) {
        let listener = net::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let addr = listener.local_addr().unwrap();
        let name = name.map(str::to_owned);
        (Inherited { name, listener }, addr)
    }

    fn addresses(
        passed: Vec<Inherited>,
        wanted: [SocketAddr; 2],
    ) -> anyhow::Result<[Option<SocketAddr>; 2]> {
        let places = places(passed, wanted)?;
        Ok(places.map(|place| place.map(|place| place.addr)))
    }

    #[test]
    fn a_socket_goes_by_its_name_then_its_address_then_its_place() {
        let elsewhere = ["10.0.0.1:1", "10.0.0.1:2"].map(|addr| addr.parse().unwrap());
        let ((admin, a), (listen, l)) = (socket(Some("admin")), socket(Some("listen")));
        let found = addresses(vec![admin, listen], elsewhere).unwrap();
        assert_eq!(found, [Some(l), Some(a)]);
        // As systemd names those of a unit that says nothing.
        let unit = Some("kvgauge.socket");
        let ((first, f), (second, s)) = (socket(unit), socket(unit));
        let found = addresses(vec![first, second], elsewhere).unwrap();
        assert_eq!(found, [Some(f), Some(s)]);
        let ((first, f), (second, s)) = (socket(None), socket(None));
        let found = addresses(vec![first, second], [s, f]).unwrap();
        assert_eq!(found, [Some(s), Some(f)]);
        let (only, o) = socket(None);
        let found = addresses(vec![only], [elsewhere[0], o]).unwrap();
        assert_eq!(found, [None, Some(o)]);
        let ((named, n), (other, o)) = (socket(Some("listen")), socket(None));
        let found = addresses(vec![other, named], elsewhere).unwrap();
        assert_eq!(found, [Some(n), Some(o)]);
        assert_eq!(addresses(Vec::new(), elsewhere).unwrap(), [None, None]);
    }

    #[test]
    fn a_socket_too_many_is_said() {
        let elsewhere = ["10.0.0.1:1", "10.0.0.1:2"].map(|addr| addr.parse().unwrap());
        let three = (0..3).map(|_| socket(None).0).collect();
        let error = addresses(three, elsewhere).unwrap_err().to_string();
        assert!(error.starts_with("3 sockets were passed"), "{error}");
        let two = (0..2).map(|_| socket(Some("admin")).0).collect();
        let error = addresses(two, elsewhere).unwrap_err().to_string();
        assert!(
            error.starts_with("Two sockets were passed for admin"),
            "{error}"
        );
    }
}

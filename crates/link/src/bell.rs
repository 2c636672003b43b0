//! The bell of a link: a socket pair that says that connections were made in memory, or that the other process is gone.

use crate::list::{at, header, links};
use crate::users::users;
use shunt_ring::offers;
use shunt_table::private;
use shunt_table::process::user;

/// The index of the link through which connections to `listener` are made in memory.
pub fn for_offers(listener: u32) -> Option<usize> {
    let user = user::effective();
    links().listed(listener).find(|index| at(*index).lends_to(listener) && at(*index).bell >= 0 && at(*index).user == user)
}

/// The bell of link `index` goes, and with it connections made in memory.
pub fn end_offers(index: usize) {
    if let Some(users) = users() {
        (users.offers_end)(index);
    }
    let link = at(index);
    if !link.ours && !link.inherited {
        offers::set_backlog(&header(link.base).offers, 0);
    }
    private::close(core::mem::replace(&mut link.bell, -1));
    private::close(core::mem::replace(&mut link.bell_for_server, -1));
}

/// The accepting process has the bell's other end. Until the link's header says so (`sole`) it is sent with each connection: several
/// processes accept, and one of them may be left alone.
pub fn bell_known(index: usize) {
    private::close(core::mem::replace(&mut at(index).bell_for_server, -1));
}

//! The client's socket, with an eye on what comes and goes: the sweeper needs to know when bytes
//! arrived, a broken answer needs to know that what was read before has left.

use super::client::Client;
use socket2::SockRef;
use std::cell::{Cell, RefCell};
use std::future::Future as _;
use std::io::{self, ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// What the kernel still holds of an answer gets this long to leave before a reset discards it.
const BEFORE_RESET: Duration = Duration::from_millis(250);

/// A client whose answer came before it had sent its body is listened to for so long at most, and for
/// so many bytes.
const LINGER: (Duration, usize) = (Duration::from_secs(5), 64 << 20);

thread_local! {
    static JOINED: RefCell<[u8; 4096]> = const { RefCell::new([0; 4096]) };
}

/// See the [module](self) description.
pub struct ClientIo {
    stream: Option<Rc<TcpStream>>,
    client: Rc<Client>,
    linger: Linger,
}

/// The end of a connection whose answer came before the request's body had come whole.
enum Linger {
    NotYet,
    /// FIN is out; what still comes is taken and dropped, so many bytes at most.
    Until(Pin<Box<Sleep>>, usize),
    Over,
}

impl ClientIo {
    /// Wraps an accepted socket.
    #[must_use]
    pub fn new(stream: TcpStream, client: Rc<Client>) -> ClientIo {
        let stream = Rc::new(stream);
        client.connected(&stream);
        ClientIo {
            stream: Some(stream),
            client,
            linger: Linger::NotYet,
        }
    }

    /// The socket alone, when what comes is no HTTP any more.
    pub(super) fn into_stream(mut self) -> Option<TcpStream> {
        self.stream.take().and_then(Rc::into_inner)
    }

    /// Takes what still comes of a body that nobody wants, until the client has seen the answer and
    /// closes: bytes that arrive at a closed socket are answered by RST, which may cost the client the
    /// answer (RFC 9112, 9.6).
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (Linger::Until(end, left), Some(stream)) = (&mut self.linger, &self.stream) else {
            return Poll::Ready(());
        };
        let mut piece = [0; 8192];
        while end.as_mut().poll(cx).is_pending() {
            let mut piece = ReadBuf::new(&mut piece);
            let read = ready!(poll_read(stream, &self.client.arming, cx, &mut piece));
            let taken = piece.filled().len();
            if read.is_err() || taken == 0 || taken >= *left {
                break;
            }
            *left -= taken;
        }
        self.linger = Linger::Over;
        Poll::Ready(())
    }

    fn parts(&self) -> io::Result<(&TcpStream, &Client)> {
        match &self.stream {
            Some(stream) => Ok((stream, &self.client)),
            None => Err(ErrorKind::NotConnected.into()),
        }
    }
}

/// Of a new connection, whose first bytes are read before the kernel has reported anything: whether
/// there is an end behind them.
pub(super) fn ends_already(stream: &TcpStream) -> bool {
    match SockRef::from(stream).peek(&mut [MaybeUninit::uninit()]) {
        Ok(count) => count == 0,
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
    }
}

/// By the readiness that the kernel reported, without reading: FIN and RST both close the read side.
pub(super) fn peer_has_left(stream: &TcpStream) -> bool {
    if !is_readable(stream) {
        return false;
    }
    let ready = pin!(stream.ready(Interest::READABLE));
    matches!(
        ready.poll(&mut Context::from_waker(Waker::noop())),
        Poll::Ready(Ok(ready)) if ready.is_read_closed()
    )
}

/// Whether the kernel has reported something that has not been read; the end counts. One atomic load.
fn is_readable(stream: &TcpStream) -> bool {
    stream.try_io(Interest::READABLE, || Ok(())).is_ok()
}

/// Who is woken when there is something to read. Asking tokio takes a lock, and a connection asks twice a
/// request: while it runs, and behind it.
#[derive(Default)]
pub(super) struct Arming {
    waker: RefCell<Option<Waker>>,
    // Only what is ready wakes, and only what was found ready is read, and so made unready.
    holds: Cell<bool>,
}

impl Arming {
    /// Ready when there is something to read, or the end.
    pub(super) fn poll(&self, stream: &TcpStream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.holds.get() && self.is_for(cx.waker()) && !is_readable(stream) {
            return Poll::Pending;
        }
        // Without a budget tokio says that nothing is ready, and wakes at once instead of later.
        let asks = tokio::task::coop::has_budget_remaining();
        let ready = stream.poll_read_ready(cx);
        self.holds.set(asks && ready.is_pending());
        if self.holds.get() && !self.is_for(cx.waker()) {
            self.waker.replace(Some(cx.waker().clone()));
        }
        ready
    }

    fn is_for(&self, waker: &Waker) -> bool {
        self.waker
            .borrow()
            .as_ref()
            .is_some_and(|known| known.will_wake(waker))
    }
}

fn poll_read(
    stream: &TcpStream,
    arming: &Arming,
    cx: &mut Context<'_>,
    room: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    loop {
        ready!(arming.poll(stream, cx))?;
        match stream.try_read_buf(room) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Ok(count) if count > 0 && room.remaining() > 0 => {
                // Less than there was room for: the kernel has no more (urgent data aside, behind which
                // it stops), and says so when it has. The next look costs no system call then
                // (epoll(7), edge-triggered; tokio's own `AsyncRead` does the same).
                let _ = stream.try_io(Interest::READABLE, || {
                    io::Result::<()>::Err(ErrorKind::WouldBlock.into())
                });
                return Poll::Ready(Ok(()));
            }
            read => return Poll::Ready(read.map(|_| ())),
        }
    }
}

fn poll_write(
    stream: &TcpStream,
    cx: &mut Context<'_>,
    write: impl Fn() -> io::Result<usize>,
) -> Poll<io::Result<usize>> {
    loop {
        // Mostly there is room, and tokio, where it knows of none, does not ask the kernel.
        match write() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            written => return Poll::Ready(written),
        }
        ready!(stream.poll_write_ready(cx))?;
    }
}

/// Several short pieces, such as a chunk and what frames it, are joined: the kernel takes one piece for
/// less than copying them costs.
fn write_all_of(stream: &TcpStream, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
    let length: usize = pieces.iter().map(|piece| piece.len()).sum();
    JOINED.with_borrow_mut(|room| match room.get_mut(..length) {
        Some(room) => {
            let mut rest = &mut *room;
            for piece in pieces {
                let (here, behind) = std::mem::take(&mut rest).split_at_mut(piece.len());
                here.copy_from_slice(piece);
                rest = behind;
            }
            stream.try_write(room)
        }
        None => stream.try_write_vectored(pieces),
    })
}

fn wrote(client: &Client, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
    match &written {
        Poll::Pending => {
            // hyper, whose buffer was full, does not look whether there is room for more of the body
            // now. Without that nobody would see that the router has sent all of it, or broken off.
            if client.got_stuck() {
                client.wake();
            }
        }
        Poll::Ready(Ok(count)) => client.bytes_left(*count),
        Poll::Ready(Err(_)) => {}
    }
    written
}

impl AsyncRead for ClientIo {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (stream, client) = self.parts()?;
        let before = buf.filled().len();
        ready!(poll_read(stream, &client.arming, cx, buf))?;
        match buf.filled().get(before..) {
            None | Some([]) => {}
            Some(bytes) => client.bytes_arrived(bytes),
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ClientIo {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let (stream, client) = self.parts()?;
        let written = poll_write(stream, cx, || stream.try_write(buf));
        wrote(client, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let (stream, client) = self.parts()?;
        let written = poll_write(stream, cx, || write_all_of(stream, bufs));
        wrote(client, written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// A socket holds nothing back; hyper flushes when it has written all that it had.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.client.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let is_new = matches!(self.linger, Linger::NotYet);
        let (stream, client) = self.parts()?;
        if client.must_reset() {
            return Poll::Ready(Ok(()));
        }
        if is_new {
            match SockRef::from(stream).shutdown(Shutdown::Write) {
                Err(error) if error.kind() != ErrorKind::NotConnected => {
                    return Poll::Ready(Err(error));
                }
                // The peer has ended it already.
                _ => {}
            }
            let has_body_left = client.has_body_left();
            self.linger = if has_body_left {
                Linger::Until(Box::pin(tokio::time::sleep(LINGER.0)), LINGER.1)
            } else {
                Linger::Over
            };
        }
        self.poll_linger(cx).map(Ok)
    }
}

impl Drop for ClientIo {
    fn drop(&mut self) {
        self.client.connection_ended();
        let Some(stream) = self.stream.take() else {
            return;
        };
        if self.client.must_reset()
            && let Some(stream) = Rc::into_inner(stream)
        {
            reset(stream);
        }
    }
}

/// Ends a connection by RST, once what the kernel still holds has had its moment; at the latest when
/// the worker ends.
pub(super) fn reset(stream: TcpStream) {
    close_by_reset(&stream);
    if tokio::runtime::Handle::try_current().is_err() {
        return;
    }
    tokio::task::spawn_local(async move {
        tokio::time::sleep(BEFORE_RESET).await;
        drop(stream);
    });
}

/// However this socket is closed, the kernel sends RST instead of FIN.
pub(super) fn close_by_reset(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

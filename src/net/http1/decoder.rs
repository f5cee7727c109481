//! Where a body ends (RFC 9112, 6 and 7.1), and its bytes without what frames them.

use super::{Broken, trailers};
use bytes::{Bytes, BytesMut};
use http::HeaderMap;

/// Bytes behind the sizes of a body's chunks (RFC 9112, 7.1.1), all together.
const MOST_EXTENSION: u32 = 16 << 10;

/// Reads a body from what comes.
#[derive(Debug, Default)]
pub(in super::super) struct Decoder(Kind);

#[derive(Debug, Default)]
enum Kind {
    /// So many bytes are still to come.
    Length(u64),
    Chunked(Chunks),
    /// All that comes until the connection ends.
    Close,
    /// All has come.
    #[default]
    Done,
}

#[derive(Debug)]
struct Chunks {
    at: At,
    /// Of the chunk.
    left: u64,
    extension: u32,
    trailers: Vec<u8>,
    found: Option<Box<HeaderMap>>,
    /// What is wrong behind what was taken.
    wrong: Option<Broken>,
}

/// What comes next of a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Size {
        digits: u8,
    },
    /// Blanks behind a size.
    Blank,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// A trailer, or the last line's end.
    Line,
    InLine,
    LineLf,
    EndLf,
    End,
}

/// What one look at what came has brought.
pub(super) struct Taken {
    /// Bytes of the body.
    pub(super) data: Bytes,
    /// Bytes of what came, framing included.
    pub(super) used: usize,
}

// === impl Decoder ===

impl Decoder {
    pub(super) fn empty() -> Decoder {
        Decoder(Kind::Done)
    }

    pub(super) fn length(length: u64) -> Decoder {
        Decoder(match length {
            0 => Kind::Done,
            length => Kind::Length(length),
        })
    }

    pub(super) fn chunked() -> Decoder {
        Decoder(Kind::Chunked(Chunks {
            at: At::Size { digits: 0 },
            left: 0,
            extension: 0,
            trailers: Vec::new(),
            found: None,
            wrong: None,
        }))
    }

    pub(super) fn until_the_end() -> Decoder {
        Decoder(Kind::Close)
    }

    pub(super) fn ends_with_the_connection(&self) -> bool {
        matches!(self.0, Kind::Close)
    }

    /// Whether the whole body has come.
    pub(in super::super) fn is_done(&self) -> bool {
        match &self.0 {
            Kind::Done => true,
            Kind::Chunked(chunks) => chunks.at == At::End,
            Kind::Length(_) | Kind::Close => false,
        }
    }

    /// Bytes that are still to come, where that is known.
    pub(in super::super) fn left(&self) -> Option<u64> {
        match &self.0 {
            Kind::Done => Some(0),
            Kind::Length(left) => Some(*left),
            Kind::Chunked(_) | Kind::Close => None,
        }
    }

    /// What is wrong with what stands behind the last piece, once.
    pub(super) fn take_wrong(&mut self) -> Option<Broken> {
        match &mut self.0 {
            Kind::Chunked(chunks) => chunks.wrong.take(),
            _ => None,
        }
    }

    /// The trailers, once, when all has come.
    pub(super) fn take_trailers(&mut self) -> Option<HeaderMap> {
        match &mut self.0 {
            Kind::Chunked(chunks) => chunks.found.take().map(|found| *found),
            _ => None,
        }
    }

    /// Takes what belongs to the body from what came; nothing is the end of the connection.
    pub(super) fn take(&mut self, came: &[u8]) -> Result<Taken, Broken> {
        if came.is_empty() {
            return self.end().map(|()| Taken {
                data: Bytes::new(),
                used: 0,
            });
        }
        match &mut self.0 {
            Kind::Done => Ok(Taken {
                data: Bytes::new(),
                used: 0,
            }),
            Kind::Close => Ok(whole(came)),
            Kind::Length(left) => {
                let used = usize::try_from(*left).map_or(came.len(), |left| left.min(came.len()));
                *left -= used as u64;
                if *left == 0 {
                    self.0 = Kind::Done;
                }
                Ok(whole(came.get(..used).unwrap_or_default()))
            }
            Kind::Chunked(chunks) => Ok(chunks.take(came)),
        }
    }

    /// The same where all that came belongs to the body, whose room is handed on then.
    pub(super) fn take_all(&mut self, came: &mut BytesMut) -> Option<Bytes> {
        match &mut self.0 {
            Kind::Length(left) if came.len() as u64 <= *left => {
                *left -= came.len() as u64;
                if *left == 0 {
                    self.0 = Kind::Done;
                }
            }
            Kind::Close => {}
            _ => return None,
        }
        Some(std::mem::take(came).freeze())
    }

    fn end(&mut self) -> Result<(), Broken> {
        if self.is_done() {
            return Ok(());
        }
        if self.ends_with_the_connection() {
            self.0 = Kind::Done;
            return Ok(());
        }
        Err(Broken::Ended("before the body was whole"))
    }
}

fn whole(bytes: &[u8]) -> Taken {
    Taken {
        data: Bytes::copy_from_slice(bytes),
        used: bytes.len(),
    }
}

// === impl Chunks ===

impl Chunks {
    /// What is good before something that is wrong is the client's to have.
    fn take(&mut self, came: &[u8]) -> Taken {
        let mut rest = came;
        let mut data = Pieces::default();
        while self.at != At::End {
            if self.at == At::Data {
                let here = usize::try_from(self.left).map_or(rest.len(), |l| l.min(rest.len()));
                let (piece, behind) = rest.split_at(here);
                data.push(piece, behind.len());
                rest = behind;
                self.left -= here as u64;
                if self.left > 0 {
                    break;
                }
                self.at = At::DataCr;
            }
            if let Some((left, behind)) = self.usual(rest) {
                (self.at, self.left, rest) = (At::Data, left, behind);
                continue;
            }
            let Some((&byte, behind)) = rest.split_first() else {
                break;
            };
            rest = behind;
            if let Err(wrong) = self.step(byte) {
                self.wrong = Some(wrong);
                break;
            }
        }
        Taken {
            data: data.into_bytes(),
            used: came.len() - rest.len(),
        }
    }

    /// What stands before nearly every chunk, read at once: the end of the one before, a size of a few
    /// digits other than 0, and nothing more. All else is read byte by byte.
    fn usual<'a>(&self, rest: &'a [u8]) -> Option<(u64, &'a [u8])> {
        let line = match self.at {
            At::DataCr => rest.strip_prefix(b"\r\n")?,
            At::Size { digits: 0 } => rest,
            _ => return None,
        };
        let (mut size, mut digits) = (0, 0);
        for &byte in line.iter().take(6) {
            let Some(digit) = char::from(byte).to_digit(16) else {
                break;
            };
            size = size << 4 | u64::from(digit);
            digits += 1;
        }
        let behind = line.get(digits..)?.strip_prefix(b"\r\n")?;
        (size > 0).then_some((size, behind))
    }

    fn step(&mut self, byte: u8) -> Result<(), Broken> {
        self.at = match (self.at, byte) {
            (At::Size { digits }, byte) if byte.is_ascii_hexdigit() => {
                self.digit(byte)?;
                At::Size {
                    digits: digits.saturating_add(1),
                }
            }
            (At::Size { digits: 1.. } | At::Blank, b' ' | b'\t') => At::Blank,
            (At::Size { digits: 1.. } | At::Blank, b';') => At::Extension,
            (At::Size { digits: 1.. } | At::Blank | At::Extension, b'\r') => At::SizeLf,
            // A bare line feed would end the line for some (RFC 9112, 7.1.1).
            (At::Extension, b'\n') => return Err(Broken::NotHttp("invalid chunk extension")),
            (At::Extension, _) => {
                self.extension += 1;
                if self.extension > MOST_EXTENSION {
                    return Err(Broken::NotHttp("chunk extensions over 16 KiB"));
                }
                At::Extension
            }
            (At::SizeLf, b'\n') if self.left == 0 => At::Line,
            (At::SizeLf, b'\n') => At::Data,
            (At::DataCr, b'\r') => At::DataLf,
            (At::DataLf, b'\n') => At::Size { digits: 0 },
            (At::Line, b'\r') => At::EndLf,
            (At::InLine, b'\r') => At::LineLf,
            (At::Line | At::InLine, byte) => {
                trailers::push(&mut self.trailers, byte)?;
                At::InLine
            }
            (At::LineLf, b'\n') => {
                trailers::push(&mut self.trailers, b'\r')?;
                trailers::push(&mut self.trailers, b'\n')?;
                At::Line
            }
            (At::EndLf, b'\n') => {
                self.found = trailers::read(&std::mem::take(&mut self.trailers))?.map(Box::new);
                At::End
            }
            _ => return Err(Broken::NotHttp("invalid chunk")),
        };
        Ok(())
    }

    fn digit(&mut self, byte: u8) -> Result<(), Broken> {
        let digit = char::from(byte).to_digit(16).unwrap_or_default();
        let left = self.left.checked_mul(16);
        let left = left.and_then(|left| left.checked_add(u64::from(digit)));
        self.left = left.ok_or(Broken::NotHttp("invalid chunk size"))?;
        Ok(())
    }
}

/// The chunks of one read as one.
#[derive(Default)]
enum Pieces<'a> {
    #[default]
    None,
    One(&'a [u8], usize),
    Many(BytesMut),
}

impl<'a> Pieces<'a> {
    /// `behind` is the most that may follow.
    fn push(&mut self, piece: &'a [u8], behind: usize) {
        if piece.is_empty() {
            return;
        }
        match self {
            Pieces::None => *self = Pieces::One(piece, behind),
            Pieces::One(first, behind) => {
                let mut all = BytesMut::with_capacity(first.len() + *behind);
                all.extend_from_slice(first);
                all.extend_from_slice(piece);
                *self = Pieces::Many(all);
            }
            Pieces::Many(all) => all.extend_from_slice(piece),
        }
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Pieces::None => Bytes::new(),
            Pieces::One(piece, _) => Bytes::copy_from_slice(piece),
            Pieces::Many(all) => all.freeze(),
        }
    }
}

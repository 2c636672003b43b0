//! Numbers: a unit or two each.

use super::{Decoder, Encoder, Error, Quadruple, Reason, Xdr};

macro_rules! number {
    ($($type:ty, $size:expr, $value:ident, $from:ident, $encode:expr, $decode:expr;)*) => {$(
        impl Xdr for $type {
            const LEAST: usize = $size;
            const MOST: usize = $size;
            #[inline(always)]
            fn encode(&self, to: &mut Encoder<'_>) {
                let $value = *self;
                $encode(to);
            }
            #[inline(always)]
            fn decode($from: &mut Decoder<'_>) -> Result<Self, Error> {
                $decode
            }
        }
    )*};
}

number! {
    u32, 4, value, from, |to: &mut Encoder<'_>| to.unsigned(value), from.unsigned();
    i32, 4, value, from, |to: &mut Encoder<'_>| to.unsigned(value as u32), Ok(from.unsigned()? as i32);
    u64, 8, value, from, |to: &mut Encoder<'_>| to.unsigned_hyper(value), from.unsigned_hyper();
    i64, 8, value, from, |to: &mut Encoder<'_>| to.unsigned_hyper(value as u64), Ok(from.unsigned_hyper()? as i64);
    f32, 4, value, from, |to: &mut Encoder<'_>| to.unsigned(value.to_bits()), Ok(f32::from_bits(from.unsigned()?));
    f64, 8, value, from, |to: &mut Encoder<'_>| to.unsigned_hyper(value.to_bits()), Ok(f64::from_bits(from.unsigned_hyper()?));
    bool, 4, value, from, |to: &mut Encoder<'_>| to.unsigned(u32::from(value)), match from.unsigned()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(from.error(Reason::Boolean(other))),
    };
    // rpcgen's own, beyond the RFC: each fills a unit.
    u8, 4, value, from, |to: &mut Encoder<'_>| to.unsigned(u32::from(value)), Ok(from.unsigned()? as u8);
    i8, 4, value, from, |to: &mut Encoder<'_>| to.unsigned(value as i32 as u32), Ok(from.unsigned()? as i8);
    u16, 4, value, from, |to: &mut Encoder<'_>| to.unsigned(u32::from(value)), Ok(from.unsigned()? as u16);
    i16, 4, value, from, |to: &mut Encoder<'_>| to.unsigned(value as i32 as u32), Ok(from.unsigned()? as i16);
}

impl Xdr for Quadruple {
    const LEAST: usize = 16;
    const MOST: usize = 16;
    fn encode(&self, to: &mut Encoder<'_>) {
        to.fixed(&self.0);
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        from.fixed_array().map(Self)
    }
}

//! Values of other values: nothing, options, what is boxed or borrowed, and the arguments of a procedure.

use super::{Decoder, Encoder, Error, Reason, Xdr};

impl Xdr for () {
    const LEAST: usize = 0;
    const MOST: usize = 0;
    #[inline(always)]
    fn encode(&self, _: &mut Encoder<'_>) {}
    #[inline(always)]
    fn decode(_: &mut Decoder<'_>) -> Result<Self, Error> {
        Ok(())
    }
}

impl<T: Xdr> Xdr for Option<Box<T>> {
    const LEAST: usize = 4;
    // What an optional value holds may be of its own type: no bound is computed.
    const MOST: usize = usize::MAX;
    fn encode(&self, to: &mut Encoder<'_>) {
        to.unsigned(u32::from(self.is_some()));
        if let Some(value) = self {
            to.nested_if(true, |to| value.encode(to));
        }
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        if bool::decode(from)? {
            from.spend(size_of::<T>())?;
            from.nested(|from| Ok(Some(Box::new(T::decode(from)?))))
        } else {
            Ok(None)
        }
    }
}

macro_rules! tuple {
    ($($name:ident)+) => {
        /// The arguments of a procedure, one behind the other.
        impl<$($name: Xdr),+> Xdr for ($($name,)+) {
            const LEAST: usize = 0 $(+ $name::LEAST)+;
            const MOST: usize = 0usize$(.saturating_add($name::MOST))+;
            #[inline(always)]
            #[allow(non_snake_case)]
            fn encode(&self, to: &mut Encoder<'_>) {
                let ($($name,)+) = self;
                $($name.encode(to);)+
            }
            #[inline(always)]
            fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
                Ok(($($name::decode(from)?,)+))
            }
        }
    };
}

tuple!(A);
tuple!(A B);
tuple!(A B C);
tuple!(A B C D);
tuple!(A B C D E);
tuple!(A B C D E F);
tuple!(A B C D E F G);
tuple!(A B C D E F G H);

/// Arguments that a caller keeps. They are never decoded as references: they would have no owner.
impl<T: Xdr> Xdr for &T {
    const LEAST: usize = T::LEAST;
    const MOST: usize = T::MOST;
    #[inline(always)]
    fn encode(&self, to: &mut Encoder<'_>) {
        (**self).encode(to);
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        Err(from.error(Reason::Borrowed))
    }
}

/// By reference: what a caller has encodes as the value would.
impl<T: Xdr> Xdr for Box<T> {
    const LEAST: usize = T::LEAST;
    const MOST: usize = T::MOST;
    #[inline(always)]
    fn encode(&self, to: &mut Encoder<'_>) {
        to.nested_if(T::MOST == usize::MAX, |to| (**self).encode(to));
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        from.nested_if(T::MOST == usize::MAX, |from| Ok(Box::new(T::decode(from)?)))
    }
}

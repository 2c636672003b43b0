//! Values as JSON by their definitions: what tools make arguments of, and show results as.
//!
//! | type | JSON |
//! |---|---|
//! | numbers, `bool` | numbers, `true` and `false`; `"inf"`, `"-inf"` and `"nan"` |
//! | `enum` | its member's name; a number is taken, too |
//! | `opaque`, `quadruple` | `"0x68656c6c6f"`; any other string for its bytes, and a list of bytes, are taken, too |
//! | `string` | a string; a list of bytes where they are no UTF-8 |
//! | `struct` | an object of its fields |
//! | `union` | an object: the discriminant by its name, and what it chooses by its own |
//! | `T a[8]`, `T a<8>` | a list |
//! | `T *a` | `null`, or the value |
//!
//! Bytes may come from an enemy: counts are compared with their bounds and the bytes that are left, nesting ends at [`DEEPEST`], and
//! arrays of what takes no bytes have an end.

use crate::model::*;
use serde_json::{json, Map, Value};

/// Values inside each other that are followed.
pub const DEEPEST: u32 = 1000;
/// Values of one JSON text at most.
const MOST: usize = 1 << 20;

/// Why there is no value: where, and what is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(String);

impl std::fmt::Display for Error {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

fn error<T>(place: &str, text: impl std::fmt::Display) -> Result<T, Error> {
    Err(Error(if place.is_empty() { text.to_string() } else { format!("{place}: {text}") }))
}

/// The name under which a union's choice stands: its own, unless the discriminant has that.
fn chosen(union: &Union, arm: &Declaration) -> String {
    if arm.name == union.discriminant.name {
        format!("{}_", arm.name)
    } else {
        arm.name.clone()
    }
}

fn inner(place: &str, name: &str) -> String {
    if place.is_empty() {
        name.to_string()
    } else {
        format!("{place}.{name}")
    }
}

/// Bytes of a JSON value: digits behind `0x`, text, or a list.
fn bytes_of(place: &str, value: &Value) -> Result<Vec<u8>, Error> {
    match value {
        Value::String(text) => match text.strip_prefix("0x") {
            Some(digits) if digits.len().is_multiple_of(2) && digits.bytes().all(|digit| digit.is_ascii_hexdigit()) => {
                let pair = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap_or(0);
                Ok((0..digits.len()).step_by(2).map(pair).collect())
            }
            Some(_) => error(place, "behind 0x stand pairs of digits"),
            None => Ok(text.clone().into_bytes()),
        },
        Value::Array(list) => {
            let byte = |value: &Value| value.as_u64().and_then(|number| u8::try_from(number).ok());
            list.iter().map(byte).collect::<Option<_>>().map_or_else(|| error(place, "a list of numbers up to 255 is wanted"), Ok)
        }
        other => error(place, format!("bytes are wanted, not {other}")),
    }
}

fn hexadecimal(bytes: &[u8]) -> Value {
    let mut text = String::from("0x");
    bytes.iter().for_each(|byte| text += &format!("{byte:02x}"));
    Value::String(text)
}

/// Makes bytes of JSON.
struct Writer<'f> {
    file: &'f File,
    bytes: Vec<u8>,
}

/// The bytes of a value of a type.
///
/// # Errors
/// What the value lacks or has too much.
pub fn encode(file: &File, declaration: &Declaration, value: &Value) -> Result<Vec<u8>, Error> {
    let mut writer = Writer { file, bytes: vec![] };
    writer.declared(declaration, value, &declaration.name, 0)?;
    Ok(writer.bytes)
}

impl Writer<'_> {
    fn unit(&mut self, value: u32) {
        self.bytes.extend(value.to_be_bytes());
    }

    fn fixed(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        self.bytes.extend(&[0; 3][..bytes.len().wrapping_neg() & 3]);
    }

    fn declared(&mut self, declaration: &Declaration, value: &Value, place: &str, depth: u32) -> Result<(), Error> {
        let base = &declaration.base;
        let bytes = matches!(base, Base::Opaque | Base::String);
        match declaration.shape {
            Shape::One => self.one(base, value, place, depth),
            Shape::Optional => {
                self.unit(u32::from(!value.is_null()));
                if value.is_null() {
                    Ok(())
                } else {
                    self.one(base, value, place, depth + 1)
                }
            }
            Shape::Fixed(count) if bytes => {
                let bytes = bytes_of(place, value)?;
                if bytes.len() != count as usize {
                    return error(place, format!("{} bytes where {count} are wanted", bytes.len()));
                }
                self.fixed(&bytes);
                Ok(())
            }
            Shape::Variable(most) if bytes => {
                let bytes = match value {
                    Value::String(text) if *base == Base::String => text.clone().into_bytes(),
                    other => bytes_of(place, other)?,
                };
                if bytes.len() > most as usize {
                    return error(place, format!("{} bytes where {most} are allowed", bytes.len()));
                }
                self.unit(bytes.len() as u32);
                self.fixed(&bytes);
                Ok(())
            }
            Shape::Fixed(_) | Shape::Variable(_) => {
                let Value::Array(values) = value else { return error(place, format!("a list is wanted, not {value}")) };
                match declaration.shape {
                    Shape::Fixed(count) if values.len() != count as usize => {
                        return error(place, format!("{} values where {count} are wanted", values.len()));
                    }
                    Shape::Variable(most) if values.len() > most as usize => {
                        return error(place, format!("{} values where {most} are allowed", values.len()));
                    }
                    Shape::Variable(_) => self.unit(values.len() as u32),
                    _ => {}
                }
                values.iter().enumerate().try_for_each(|(at, value)| self.one(base, value, &format!("{place}[{at}]"), depth + 1))
            }
        }
    }

    fn one(&mut self, base: &Base, value: &Value, place: &str, depth: u32) -> Result<(), Error> {
        if depth > DEEPEST {
            return error(place, format!("nested deeper than {DEEPEST}"));
        }
        let signed = |least: i64, most: i64| match value.as_i64() {
            Some(number) if (least..=most).contains(&number) => Ok(number),
            _ => error(place, format!("a number from {least} to {most} is wanted, not {value}")),
        };
        let real = || match value {
            Value::String(text) => text.parse::<f64>().or_else(|_| error(place, format!("a number is wanted, not {value}"))),
            other => other.as_f64().map_or_else(|| error(place, format!("a number is wanted, not {value}")), Ok),
        };
        match base {
            Base::Void if value.is_null() => {}
            Base::Void => return error(place, "nothing is wanted: null"),
            Base::Int => self.unit(signed(i32::MIN.into(), i32::MAX.into())? as u32),
            Base::Short => self.unit(signed(i16::MIN.into(), i16::MAX.into())? as u32),
            Base::Char => self.unit(signed(i8::MIN.into(), i8::MAX.into())? as u32),
            Base::Unsigned => self.unit(signed(0, u32::MAX.into())? as u32),
            Base::UnsignedShort => self.unit(signed(0, u16::MAX.into())? as u32),
            Base::UnsignedChar => self.unit(signed(0, u8::MAX.into())? as u32),
            Base::Hyper => self.bytes.extend(signed(i64::MIN, i64::MAX)?.to_be_bytes()),
            Base::UnsignedHyper => match value.as_u64() {
                Some(number) => self.bytes.extend(number.to_be_bytes()),
                None => return error(place, format!("a number from 0 to {} is wanted, not {value}", u64::MAX)),
            },
            Base::Float => self.bytes.extend((real()? as f32).to_be_bytes()),
            Base::Double => self.bytes.extend(real()?.to_be_bytes()),
            Base::Bool => match value.as_bool() {
                Some(truth) => self.unit(truth.into()),
                None => return error(place, format!("true or false is wanted, not {value}")),
            },
            Base::Quadruple => {
                let bytes = bytes_of(place, value)?;
                if bytes.len() != 16 {
                    return error(place, format!("{} bytes where 16 are wanted", bytes.len()));
                }
                self.fixed(&bytes);
            }
            Base::Opaque | Base::String => return error(place, "bytes without a length"),
            Base::Named(name) => return self.named(name, value, place, depth),
        }
        Ok(())
    }

    fn named(&mut self, name: &str, value: &Value, place: &str, depth: u32) -> Result<(), Error> {
        let file = self.file;
        match file.definition(name) {
            Some(Definition::Enumeration(_, members)) => {
                let found = members.iter().find(|(name, number)| {
                    value.as_str().is_some_and(|word| word == name) || value.as_i64().is_some_and(|value| value == *number)
                });
                let Some((_, number)) = found else {
                    let names: Vec<&str> = members.iter().map(|member| member.0.as_str()).collect();
                    return error(place, format!("one of {} is wanted, not {value}", names.join(", ")));
                };
                self.unit(*number as u32);
                Ok(())
            }
            Some(Definition::Structure(_, fields)) => {
                let object = object(value, place, fields.iter().map(|field| field.name.clone()).collect())?;
                fields.iter().try_for_each(|field| {
                    let place = inner(place, &field.name);
                    let value = object.get(&field.name).unwrap_or(&Value::Null);
                    if value.is_null() && field.shape != Shape::Optional && !object.contains_key(&field.name) {
                        return error(&place, "is missing");
                    }
                    self.declared(field, value, &place, depth + 1)
                })
            }
            Some(Definition::Union(union)) => {
                let decides = &union.discriminant.name;
                let Some(label) = value.get(decides) else {
                    return error(place, format!("an object with `{decides}` is wanted, not {value}"));
                };
                let at = self.bytes.len();
                self.declared(&union.discriminant, label, &inner(place, decides), depth + 1)?;
                let number = self.bytes.get(at..at + 4).map_or(0, |four| i32::from_be_bytes(four.try_into().unwrap_or_default()));
                let Some(arm) = arm(union, number) else {
                    return error(place, format!("no arm of `{name}` for {label}"));
                };
                let mut names = vec![decides.clone()];
                names.extend(arm.map(|arm| chosen(union, arm)));
                let object = object(value, place, names)?;
                let Some(arm) = arm else { return Ok(()) };
                let name = chosen(union, arm);
                let place = inner(place, &name);
                match object.get(&name) {
                    Some(value) => self.declared(arm, value, &place, depth + 1),
                    None if arm.shape == Shape::Optional => self.declared(arm, &Value::Null, &place, depth + 1),
                    None => error(&place, "is missing"),
                }
            }
            Some(Definition::Typedef(declaration)) => self.declared(declaration, value, place, depth + 1),
            _ => error(place, format!("no type is called `{name}`")),
        }
    }
}

/// An object that has these names and no others.
fn object<'v>(value: &'v Value, place: &str, names: Vec<String>) -> Result<&'v Map<String, Value>, Error> {
    let Value::Object(object) = value else {
        return error(place, format!("an object of {} is wanted, not {value}", names.join(", ")));
    };
    match object.keys().find(|key| !names.contains(key)) {
        Some(key) => error(place, format!("`{key}` is none of {}", names.join(", "))),
        None => Ok(object),
    }
}

/// What a number chooses; `None`: it may not be.
fn arm(union: &Union, number: i32) -> Option<Option<&Declaration>> {
    let decided = union.arms.iter().find(|(_, value, _)| *value as i32 == number);
    decided.map(|(_, _, arm)| arm.as_ref()).or_else(|| union.default.as_ref().map(Option::as_ref))
}

/// Makes JSON of bytes.
struct Reader<'f, 'b> {
    file: &'f File,
    bytes: &'b [u8],
    at: usize,
    values: usize,
}

/// The value of a type that fills these bytes.
///
/// # Errors
/// Why they are none.
pub fn decode(file: &File, declaration: &Declaration, bytes: &[u8]) -> Result<Value, Error> {
    let mut reader = Reader { file, bytes, at: 0, values: 0 };
    let value = reader.declared(declaration, 0)?;
    match bytes.len() - reader.at {
        0 => Ok(value),
        left => reader.error(format!("{left} bytes behind the value")),
    }
}

impl Reader<'_, '_> {
    fn error<T>(&self, text: impl std::fmt::Display) -> Result<T, Error> {
        error(&format!("at byte {}", self.at), text)
    }

    fn take(&mut self, count: usize) -> Result<&[u8], Error> {
        match self.bytes[self.at..].get(..count) {
            Some(bytes) => {
                self.at += count;
                Ok(bytes)
            }
            None => self.error("the bytes end too early"),
        }
    }

    fn unit(&mut self) -> Result<u32, Error> {
        Ok(u32::from_be_bytes(self.take(4)?.try_into().unwrap_or_default()))
    }

    fn two(&mut self) -> Result<u64, Error> {
        Ok(u64::from_be_bytes(self.take(8)?.try_into().unwrap_or_default()))
    }

    fn fixed(&mut self, count: usize) -> Result<Vec<u8>, Error> {
        let bytes = self.take(count)?.to_vec();
        if self.take(count.wrapping_neg() & 3)?.iter().any(|&byte| byte != 0) {
            return self.error("padding that is not zero");
        }
        Ok(bytes)
    }

    fn declared(&mut self, declaration: &Declaration, depth: u32) -> Result<Value, Error> {
        let base = &declaration.base;
        let count = match declaration.shape {
            Shape::One => return self.one(base, depth),
            Shape::Optional => {
                return match self.unit()? {
                    0 => Ok(Value::Null),
                    1 => self.one(base, depth + 1),
                    other => self.error(format!("{other} is no boolean")),
                }
            }
            Shape::Fixed(count) => count,
            Shape::Variable(most) => match self.unit()? {
                count if count > most => return self.error(format!("{count} elements where the definition allows {most}")),
                count => count,
            },
        };
        match base {
            Base::Opaque => Ok(hexadecimal(&self.fixed(count as usize)?)),
            Base::String => {
                let bytes = self.fixed(count as usize)?;
                Ok(String::from_utf8(bytes).map_or_else(|error| json!(error.as_bytes()), Value::String))
            }
            _ => (0..count).map(|_| self.one(base, depth + 1)).collect::<Result<Vec<_>, _>>().map(Value::Array),
        }
    }

    fn one(&mut self, base: &Base, depth: u32) -> Result<Value, Error> {
        self.values += 1;
        if depth > DEEPEST || self.values > MOST {
            return self.error(format!("nested deeper than {DEEPEST}, or more than {MOST} values"));
        }
        let real = |number: f64| match number {
            number if number.is_nan() => json!("nan"),
            f64::INFINITY => json!("inf"),
            f64::NEG_INFINITY => json!("-inf"),
            number => json!(number),
        };
        Ok(match base {
            Base::Void => Value::Null,
            Base::Int => json!(self.unit()? as i32),
            Base::Short => json!(self.unit()? as i16),
            Base::Char => json!(self.unit()? as i8),
            Base::Unsigned => json!(self.unit()?),
            Base::UnsignedShort => json!(self.unit()? as u16),
            Base::UnsignedChar => json!(self.unit()? as u8),
            Base::Hyper => json!(self.two()? as i64),
            Base::UnsignedHyper => json!(self.two()?),
            Base::Float => {
                let number = f32::from_bits(self.unit()?);
                // As few digits as tell it from its neighbours.
                real(if number.is_finite() { number.to_string().parse().unwrap_or(0.0) } else { number.into() })
            }
            Base::Double => real(f64::from_bits(self.two()?)),
            Base::Bool => match self.unit()? {
                0 => json!(false),
                1 => json!(true),
                other => return self.error(format!("{other} is no boolean")),
            },
            Base::Quadruple => hexadecimal(&self.fixed(16)?),
            Base::Opaque | Base::String => return self.error("bytes without a length"),
            Base::Named(name) => return self.named(name, depth),
        })
    }

    fn named(&mut self, name: &str, depth: u32) -> Result<Value, Error> {
        let file = self.file;
        match file.definition(name) {
            Some(Definition::Enumeration(_, members)) => {
                let number = self.unit()? as i32;
                match members.iter().find(|member| member.1 == i64::from(number)) {
                    Some((name, _)) => Ok(json!(name)),
                    None => self.error(format!("{number} is not of the enumeration `{name}`")),
                }
            }
            Some(Definition::Structure(_, fields)) => {
                let field = |field: &Declaration| Ok((field.name.clone(), self.declared(field, depth + 1)?));
                fields.iter().map(field).collect::<Result<Map<_, _>, _>>().map(Value::Object)
            }
            Some(Definition::Union(union)) => {
                let before = self.at;
                let label = self.declared(&union.discriminant, depth + 1)?;
                let four = self.bytes.get(before..before + 4).unwrap_or_default();
                let number = i32::from_be_bytes(four.try_into().unwrap_or_default());
                let Some(arm) = arm(union, number) else { return self.error(format!("no arm of `{name}` for {number}")) };
                let mut object = Map::from_iter([(union.discriminant.name.clone(), label)]);
                if let Some(arm) = arm {
                    object.insert(chosen(union, arm), self.declared(arm, depth + 1)?);
                }
                Ok(Value::Object(object))
            }
            Some(Definition::Typedef(declaration)) => self.declared(declaration, depth + 1),
            _ => self.error(format!("no type is called `{name}`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    const FILE: &str = "enum e { A = -1, B }; typedef opaque o[5]; typedef string s<7>; struct t { e a; o b; int c<3>; t *d; };
        union u switch (e kind) { case A: t x; case B: void; }; union v switch (int n) { case 3: unsigned n; default: s z; };
        struct n { unsigned hyper a; hyper b; float c; double d; bool e; short f; char g; quadruple h; };
        struct empty { void; }; struct bomb { empty all<>; };";

    fn of(kind: &str) -> (File, Declaration) {
        let declaration = Declaration { name: String::new(), base: Base::Named(kind.into()), shape: Shape::One };
        (parse(FILE).unwrap(), declaration)
    }

    fn returns(kind: &str, value: Value, bytes: &[u8]) {
        let (file, declaration) = of(kind);
        assert_eq!(encode(&file, &declaration, &value).as_deref(), Ok(bytes), "{value}");
        assert_eq!(decode(&file, &declaration, bytes), Ok(value));
    }

    fn refused(kind: &str, value: Value) -> String {
        let (file, declaration) = of(kind);
        encode(&file, &declaration, &value).unwrap_err().to_string()
    }

    #[test]
    fn values_return_as_they_went() {
        returns("e", json!("A"), &[255; 4]);
        returns("s", json!("häh"), b"\0\0\0\x04h\xc3\xa4h");
        returns("s", json!([255]), b"\0\0\0\x01\xff\0\0\0");
        let link = json!({"a": "B", "b": "0x0102030405", "c": [], "d": null});
        let bytes = b"\0\0\0\0\x01\x02\x03\x04\x05\0\0\0\0\0\0\0\0\0\0\0";
        returns("t", link.clone(), bytes);
        let two = [b"\xff\xff\xff\xff\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\x07\0\0\0\x01", &bytes[..]].concat();
        returns("t", json!({"a": "A", "b": "0x0000000000", "c": [7], "d": link}), &two);
        returns("u", json!({"kind": "B"}), &[0; 4]);
        returns("u", json!({"kind": "A", "x": link}), &[&[255; 4], &bytes[..]].concat());
        returns("v", json!({"n": 3, "n_": 9}), &[0, 0, 0, 3, 0, 0, 0, 9]);
        returns("v", json!({"n": -4, "z": ""}), &[255, 255, 255, 252, 0, 0, 0, 0]);
        let (a, b) = (u64::MAX, i64::MIN);
        let numbers =
            json!({"a": a, "b": b, "c": 0.1, "d": "nan", "e": true, "f": -2, "g": -3, "h": "0x000102030405060708090a0b0c0d0e0f"});
        let (file, declaration) = of("n");
        let bytes = encode(&file, &declaration, &numbers).unwrap();
        assert_eq!((bytes.len(), &bytes[..16]), (56, &[&a.to_be_bytes()[..], &b.to_be_bytes()].concat()[..]));
        assert_eq!(decode(&file, &declaration, &bytes), Ok(numbers));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        assert_eq!(refused("e", json!("C")), "one of A, B is wanted, not \"C\"");
        assert_eq!(refused("s", json!("12345678")), "8 bytes where 7 are allowed");
        assert_eq!(
            refused("t", json!({"a": 0, "b": "12345", "c": [1, "x"]})),
            "c[1]: a number from -2147483648 to 2147483647 is wanted, not \"x\""
        );
        assert_eq!(refused("t", json!({"a": 0, "b": "1234", "c": []})), "b: 4 bytes where 5 are wanted");
        assert_eq!(refused("t", json!({"a": 0, "c": []})), "b: is missing");
        assert_eq!(refused("t", json!({"e": 0})), "`e` is none of a, b, c, d");
        assert_eq!(refused("u", json!({"kind": "B", "x": 1})), "`x` is none of kind");
        let (file, declaration) = of("s");
        assert_eq!(
            decode(&file, &declaration, &[0, 0, 0, 9]).unwrap_err().to_string(),
            "at byte 4: 9 elements where the definition allows 7"
        );
        assert_eq!(
            decode(&file, &declaration, &[0, 0, 0, 1, 65, 1, 0, 0]).unwrap_err().to_string(),
            "at byte 8: padding that is not zero"
        );
    }

    #[test]
    fn an_enemy_is_refused_early() {
        let (file, declaration) = of("bomb");
        assert!(decode(&file, &declaration, &[255; 4]).is_err(), "four thousand million of nothing");
        let (file, declaration) = of("t");
        let link = [&[0; 16][..], &[0, 0, 0, 1]].concat();
        assert!(decode(&file, &declaration, &link.repeat(5000)).unwrap_err().to_string().contains("nested deeper"));
    }
}

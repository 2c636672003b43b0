#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shunt_fuzzing::run("capture_notes", data));

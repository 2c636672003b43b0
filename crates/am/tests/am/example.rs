//! The example says what it should.

#[test]
fn the_example_runs() {
    assert_eq!(shunt_testkit::example("messages"), "20 + 22 = 42\n");
}

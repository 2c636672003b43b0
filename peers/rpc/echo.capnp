@0xb6a5c0dd0f3e2d41;

interface Echo {
  echo @0 (word :UInt64) -> (word :UInt64);
}

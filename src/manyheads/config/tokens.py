"""The token ids that every vocabulary begins with. There is no padding token."""

UNK_ID, BOS_ID, EOS_ID = 0, 1, 2
NUM_SPECIAL_TOKENS = 3

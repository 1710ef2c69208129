"""What a translation must contain exactly as its source does: URLs, numbers, placeholders, emoji, ...

Models that are trained for it read and write copy symbols in place of such text.
"""

COPY_SYMBOLS = tuple(f"\u27e6{index}\u27e7" for index in range(8))  # ⟦0⟧ to ⟦7⟧

"""The `digits` network: trained on the handwritten digits that scikit-learn ships (UCI Optical Recognition of Handwritten Digits, 8x8)."""

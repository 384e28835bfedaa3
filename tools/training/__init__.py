"""How the learned gate detector is made: frames drawn at random, a U-Net trained on them, one ONNX file. See README.md."""

"""The HTTP libraries, behind one seam."""

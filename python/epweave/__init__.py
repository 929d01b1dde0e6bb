from .fx import *

"""The pages: server-rendered, usable without JavaScript, nothing loaded from elsewhere.

`app` includes `router` after the API's routers, since its last route answers every path that is not the API's.
"""

from gatekeeper.web.pages import router

__all__ = ["router"]

local os = require("os")
obj.spec.action = { type = "Retry", id = "argocd-" .. os.time() }
return obj

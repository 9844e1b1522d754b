local os = require("os")
obj.spec.action = { type = "Abort", id = "argocd-" .. os.time() }
return obj

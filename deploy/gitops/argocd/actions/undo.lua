local os = require("os")
obj.spec.action = { type = "Undo", id = "argocd-" .. os.time() }
return obj
